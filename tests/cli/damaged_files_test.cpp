// Files that were cut short or changed on their way: one line that names the file, exit code 2, and
// nothing is lost, neither the files nor what was made before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "cli/training.h"
#include "comm/communicator.h"
#include "data/byte_source.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Four lines of {"text": "hello world number 0"}, packed.
const char* const kFourGzip =
    "1f8b0800000000000203ab562a49ad2851b25250ca48cdc9c95728cf2fca4951c82bcd4d4a2d523050aae5aac6a7c0"
    "90900223420a8c810a006a0d705584000000";
const char* const kFourZstd =
    "28b52ffd24849d010074027b2274657874223a202268656c6c6f20776f726c64206e756d6265722030227d0a313233"
    "227d0a0300001780df905b3d01a1393468";

std::string unpacked_hex(const std::string& hex) {
  std::string bytes;
  for (size_t at = 0; at < hex.size(); at += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16)));
  return bytes;
}

class ProgramDamage : public TrainingTest {
 protected:
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(work() / name, std::ios::binary) << content;
  }
  // Refused in one line that names the file and says why; every file keeps its bytes.
  void expect_kept(const std::string& line, const std::string& file,
                   const std::string& says) const {
    SCOPED_TRACE(line);
    const auto before = contents();
    const Answer answer = veil(line);
    EXPECT_EQ(answer.code, kExitUsage);
    EXPECT_EQ(answer.complaints(), 1) << answer.err;
    EXPECT_THAT(answer.err, StartsWith("veil: "));
    EXPECT_THAT(answer.err, HasSubstr(file));
    EXPECT_THAT(answer.err, HasSubstr(says));
    EXPECT_EQ(answer.err.find("internal error"), std::string::npos) << answer.err;
    EXPECT_EQ(contents(), before) << "a file was made, changed or lost";
  }
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const std::string& path : entries()) {
      if (fs::is_regular_file(path)) all[path] = text(path);
    }
    return all;
  }
};

TEST_F(ProgramDamage, OfDataIsNamedWithItsFile) {
  const auto train = [](const std::string& data) {
    return "train --model llama-tiny --from-scratch --seq-length 16 --device cpu --steps 1 "
           "--batch-size 1 --held-out 0 --output-dir runs --data " +
           data;
  };
  struct Packed {
    bool built;
    const char *ending, *hex, *says;
    size_t flipped;  // of the packed text, not of a header whose bytes may mean nothing
  };
  for (const Packed& packed :
       {Packed{data::built_with_zlib(), ".gz", kFourGzip, "is no whole gzip file", 30},
        Packed{data::built_with_zstd(), ".zst", kFourZstd, "is no whole zstd file", 24}}) {
    if (!packed.built) continue;
    const std::string whole = unpacked_hex(packed.hex),
                      name = "cut.jsonl" + std::string(packed.ending);
    write("whole.jsonl" + std::string(packed.ending), whole);
    const Answer good = veil("data whole.jsonl" + std::string(packed.ending));
    EXPECT_EQ(good.code, kExitDone) << good.err;
    for (const size_t kept : {size_t{5}, whole.size() / 2, whole.size() - 3}) {
      write(name, whole.substr(0, kept));
      SCOPED_TRACE(kept);
      expect_kept(train(name), name, packed.says);
    }
    std::string flipped = whole;
    flipped[packed.flipped] ^= 0x10;
    write("flipped.jsonl" + std::string(packed.ending), flipped);
    expect_kept(train("flipped.jsonl" + std::string(packed.ending)), "flipped.jsonl", packed.says);
  }
  write("quote.csv", "text,label\n\"one\",1\n\"two,2\n");
  expect_kept(train("quote.csv"), "quote.csv:3", "quote");
  write("cut.json", "[{\"text\": \"one\"}, {\"text\": \"tw");
  expect_kept(train("cut.json"), "cut.json", "JSON");
  write("cut.jsonl", "{\"text\": \"one\"}\n{\"text\": \"tw");
  expect_kept(train("cut.jsonl"), "cut.jsonl:2", "JSON");
}

// As a run leaves them that is killed between its last checkpoint and the removal of the oldest.
TEST_F(ProgramDamage, AtResumeOneCheckpointTooManyGoesOnlyIfTheNewestIsWhole) {
  write("some.jsonl", "{\"text\": \"one two three\"}\n{\"text\": \"four five six\"}\n");
  fs::create_directory(work() / "run");
  const std::string line =
      "train --model llama-tiny --from-scratch --seq-length 8 --device cpu --batch-size 1 "
      "--held-out 0 --data some.jsonl --checkpoint-every 1 --keep-checkpoints 2 --resume run "
      "--steps ";
  const fs::path checkpoints = work() / "run" / "checkpoints",
                 oldest = checkpoints / "step_00000001";
  ASSERT_EQ(veil(line + "2").code, kExitDone);
  fs::copy(oldest, work() / "oldest", fs::copy_options::recursive);
  ASSERT_EQ(veil(line + "3").code, kExitDone);
  ASSERT_FALSE(fs::exists(oldest));
  fs::copy(work() / "oldest", oldest, fs::copy_options::recursive);

  const fs::path newest = checkpoints / "step_00000003" / "rank_00000.safetensors";
  const std::string whole = text(newest);
  std::string damaged = whole;
  damaged.back() ^= 1;
  std::ofstream(newest, std::ios::binary) << damaged;
  expect_kept(line + "3", "rank_00000.safetensors", "step_00000002");
  std::ofstream(newest, std::ios::binary) << whole;

  const Answer resumed = veil(line + "3");
  EXPECT_EQ(resumed.code, kExitDone) << resumed.err;
  EXPECT_FALSE(fs::exists(oldest));
  EXPECT_TRUE(fs::exists(checkpoints / "step_00000002"));
  EXPECT_TRUE(fs::exists(newest));
}

// Far deeper than a stack is: brackets that a parser by recursion would not survive.
TEST_F(ProgramDamage, JsonThatNestsWithoutEndIsOneLine) {
  const std::string deep(300'000, '['), inside = "{\"text\": " + deep;
  const std::string train = "train --device cpu --seq-length 16 --steps 1 --held-out 0 ",
                    tiny = train + "--model llama-tiny --from-scratch --data ";
  write("deep.jsonl", inside + "\n");
  expect_kept(tiny + "deep.jsonl", "deep.jsonl", "");
  write("deep.json", "[" + inside);
  expect_kept(tiny + "deep.json", "deep.json", "");
  write("good.jsonl", "{\"text\": \"one two three\"}\n");
  fs::create_directory(work() / "model");
  write("model/config.json", "{\"model_type\": " + deep);
  expect_kept(train + "--model model --data good.jsonl", "model/config.json", "");
  write("tokenizer.json", "{\"model\": " + deep);
  expect_kept(tiny + "good.jsonl --tokenizer tokenizer.json", "tokenizer.json", "");
  fs::create_directory(work() / "results");
  write("results/a.json", "{\"command\": " + deep);
  const Answer report = veil("report results");
  EXPECT_NE(report.code, kExitDone);
  EXPECT_LE(report.code, 3) << report.err;
}

TEST_F(ProgramDamage, ACheckpointWithAFlippedBitIsRefusedAndAWholeOneNamed) {
  const std::string line = "train --model llama-tiny --from-scratch --data '" + source_root() +
                           "/examples/text' --seq-length 16 --device cpu --batch-size 4 "
                           "--held-out 0 --steps 3 --checkpoint-every 1 --resume run ";
  fs::create_directory(work() / "run");
  const Answer first = veil(line);
  ASSERT_EQ(first.code, kExitDone) << first.err;
  const std::string newest = "run/checkpoints/step_00000003", more = "train --resume run --steps 4";
  for (const char* name : {"rank_00000.safetensors", "state.json"}) {
    const std::string file = newest + "/" + name, whole = text(work() / file);
    for (const size_t at : {whole.size() / 3, whole.size() - 4}) {
      std::string flipped = whole;
      flipped[at] ^= 1;
      write(file, flipped);
      expect_kept(more, file, "step_00000002 is whole");
    }
    write(file, whole);
  }
  const std::string rank = newest + "/rank_00000.safetensors", kept = text(work() / rank);
  fs::remove(work() / rank);
  expect_kept(more, rank + ": missing", "step_00000002 is whole");
  write(rank, kept);
  // whole, and of another version or without sense
  const std::string file = newest + "/state.json", state = text(work() / file);
  const auto changed = [&](const char* key, const Json& value) {
    Json json = Json::parse(state);
    json[key] = value;
    json.erase("check");
    json["check"] = digest_text(sha256(json.dump()));
    write(file, json.dump(1));
  };
  changed("schema", 99);
  expect_kept(more, file, "its schema is 99, this version of Veil reads 1");
  for (const Json& steps : {Json(1000000000000000000), Json(-1), Json(2.5), Json("3")}) {
    changed("steps", steps);
    expect_kept(more, file, "steps " + steps.dump() + ": allowed is a whole number");
  }
  for (const char* field : {"position", "global_batch", "privacy", "frozen"}) {
    changed(field, Json::array());
    expect_kept(more, file, std::string(field) + " []: allowed is");
  }
  write(file, state);
  // what the message says works
  fs::rename(work() / newest, work() / "aside");
  const Answer again = veil(more);
  EXPECT_EQ(again.code, kExitDone) << again.err;
}

// Steps five and six were begun after the checkpoint that is whole. The same run computes the same
// bits again, and they count once; any other run counts them in addition.
TEST_F(ProgramDamage, WhatTheLineOffersContinuesAPrivateRunAndNoStepGoesUncounted) {
  std::string documents;
  for (int i = 0; i < 40; ++i) documents += Json{{"text", fmt::format("text {}", i)}}.dump() + "\n";
  write("data.jsonl", documents);
  const std::string line =
      "train --model llama-tiny --from-scratch --data data.jsonl --seq-length 16 --device cpu "
      "--held-out 0 --sigma 0.2 --delta 1e-5 --accountant rdp --total-batch-size 4 --batch-size 4 "
      "--steps 6 --checkpoint-every 2 --resume 'a run' --export ";
  fs::create_directory(work() / "a run");
  ASSERT_EQ(veil(line + "whole").code, kExitDone);
  const fs::path newest = work() / "a run/checkpoints/step_00000006";
  // Damages the newest checkpoint and does what the line says.
  const auto damage_and_follow = [&](const char* file, bool remove) {
    const std::string name = "a run/checkpoints/step_00000006/" + std::string(file);
    std::string bytes = text(work() / name);
    if (remove) {
      fs::remove(work() / name);
    } else {
      write(name, bytes.substr(0, bytes.size() / 2));
    }
    expect_kept("train --resume 'a run'", name, remove ? "missing" : "damaged");
    const std::string says = veil("train --resume 'a run'").err;
    EXPECT_THAT(says, HasSubstr("step_00000004 is whole: to continue from it, run `mv "));
    const size_t begin = says.find('`') + 1;
    const std::string command = says.substr(begin, says.find('`', begin) - begin);
    EXPECT_EQ(std::system(("cd '" + work().string() + "' && " + command).c_str()), 0) << command;
    EXPECT_FALSE(fs::exists(newest));
    EXPECT_TRUE(fs::exists(work() / "a run/damaged_step_00000006")) << "nothing is deleted";
    fs::remove_all(work() / "a run/damaged_step_00000006");
  };
  const auto private_json = [&](const char* folder) {
    return read(work() / folder / "privacy.json");
  };
  damage_and_follow("rank_00000.safetensors", /*remove=*/false);
  const Answer same = veil(line + "same");
  ASSERT_EQ(same.code, kExitDone) << same.err;
  EXPECT_THAT(same.out, HasSubstr("exact replay"));
  EXPECT_TRUE(weight_bytes(work() / "same") == weight_bytes(work() / "whole"));
  EXPECT_EQ(private_json("same"), private_json("whole"));
  damage_and_follow("state.json", /*remove=*/true);
  const Answer other = veil(line + "other --weight-decay 0.2");
  ASSERT_EQ(other.code, kExitDone) << other.err;
  EXPECT_THAT(other.out, HasSubstr("2 steps that were begun before stay counted"));
  EXPECT_EQ(private_json("other")["steps"].get<int64_t>(), 8);
  EXPECT_GT(private_json("other")["epsilon"].get<double>(),
            private_json("whole")["epsilon"].get<double>());
}

TEST_F(ProgramDamage, AFileOfARankThatIsMissingIsNamed) {
  if (!built_with_mpi()) GTEST_SKIP() << "this build has no MPI";
  fs::create_directory(work() / "run");
  ASSERT_EQ(veil("train --model llama-tiny --from-scratch --data '" + source_root() +
                 "/examples/text' --seq-length 16 --device cpu --held-out 0 --total-batch-size 4 "
                 "--steps 2 --checkpoint-every 1 --ranks 2 --strategy zero3 --resume run")
                .code,
            kExitDone);
  const std::string file = "run/checkpoints/step_00000002/rank_00001.safetensors";
  fs::remove(work() / file);
  expect_kept("train --resume run --steps 3 --ranks 1", file + ": missing",
              "step_00000001 is whole");
}

TEST_F(ProgramDamage, AnExportsStatementOfPrivacyIsNotBelievedWithAnotherSigma) {
  const std::string data = " --data '" + source_root() +
                           "/examples/text' --seq-length 16 --device cpu --held-out 0 --sigma 1 "
                           "--delta 1e-5 --accountant rdp --total-batch-size 4 --steps 1 ";
  ASSERT_EQ(veil("train --model llama-tiny --from-scratch --export model" + data).code, kExitDone);
  std::string statement = text(work() / "model/privacy.json");
  const size_t at = statement.find("\"sigma\": 1");
  ASSERT_NE(at, std::string::npos);
  write("model/privacy.json", statement.replace(at, 10, "\"sigma\": 9"));
  expect_kept("train --model model" + data, "model/privacy.json", "damaged");
}

TEST_F(ProgramDamage, AFileInPlaceOfTheCheckpointsFolderIsNamed) {
  const std::string line = "train --model llama-tiny --from-scratch --data '" + source_root() +
                           "/examples/text' --seq-length 16 --device cpu --batch-size 4 "
                           "--held-out 0 --steps 1 --resume run ";
  fs::create_directory(work() / "run");
  ASSERT_EQ(veil(line).code, kExitDone);
  fs::remove_all(work() / "run/checkpoints");
  write("run/checkpoints", "a file");
  const Answer answer = veil(line);
  EXPECT_EQ(answer.code, kExitUsage) << answer.err;
  EXPECT_EQ(answer.complaints(), 1) << answer.err;
  EXPECT_THAT(answer.err, HasSubstr("run/checkpoints' is a file"));
  EXPECT_EQ(text(work() / "run/checkpoints"), "a file");
}

TEST_F(ProgramDamage, OfAnAdapterIsNamedWithItsFile) {
  const std::string line = "train --model base --data '" + source_root() +
                           "/examples/text' --seq-length 16 --device cpu --batch-size 4 "
                           "--held-out 0 --steps 1 ";
  ASSERT_EQ(veil("train --model llama-tiny --from-scratch --data '" + source_root() +
                 "/examples/text' --seq-length 16 --device cpu --batch-size 4 --held-out 0 --steps "
                 "1 --export base")
                .code,
            kExitDone);
  ASSERT_EQ(veil(line + "--lora 2 --export tuned").code, kExitDone);
  const std::string again = line + "--adapter tuned --export more",
                    weights = text(work() / "tuned" / "adapter_model.safetensors"),
                    config = text(work() / "tuned" / "adapter_config.json");
  for (const size_t kept :
       {size_t{0}, size_t{6}, size_t{200}, weights.size() / 2, weights.size() - 1}) {
    SCOPED_TRACE(kept);
    write("tuned/adapter_model.safetensors", weights.substr(0, kept));
    expect_kept(again, "tuned/adapter_model.safetensors", "");
  }
  expect_kept("sample --model base --adapter tuned --prompt a --device cpu",
              "tuned/adapter_model.safetensors", "");
  std::string header = weights;
  header[12] ^= 0x40;  // within the JSON of its header
  write("tuned/adapter_model.safetensors", header);
  expect_kept(again, "tuned/adapter_model.safetensors", "");
  std::string flipped = weights;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  write("tuned/adapter_model.safetensors", flipped);
  expect_kept(again, "tuned/adapter_model.safetensors", "damaged");
  write("tuned/adapter_model.safetensors", weights);
  for (const std::string& damaged :
       {std::string(), config.substr(0, config.size() / 2), std::string("[1, 2]"),
        std::string("{\"peft_type\": \"LORA\"}")}) {
    SCOPED_TRACE(damaged);
    write("tuned/adapter_config.json", damaged);
    expect_kept(again, "tuned/adapter_config.json", "");
  }
  std::string other = config;
  const size_t at = other.find("\"r\": 2");
  ASSERT_NE(at, std::string::npos);
  write("tuned/adapter_config.json", other.replace(at, 6, "\"r\": \"two\""));
  expect_kept(again, "tuned/adapter_config.json", "");
  write("tuned/adapter_config.json", config);
  EXPECT_EQ(veil(again).code, kExitDone) << "whole again, it is read";
}

}  // namespace
}  // namespace veil
