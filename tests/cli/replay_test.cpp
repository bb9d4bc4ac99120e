// Two private runs share their noise only if they are the same run: the attempts of a person who
// exchanges documents, weights, checkpoints or libraries' settings behind the program's back. And
// what a model's statement says of its noise and of the training before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "cli/training.h"
#include "comm/communicator.h"
#include "data/content_hash.h"
#include "data/image_file.h"
#include "estimate/skewed_prices.h"
#include "privacy/accountant.h"
#include "privacy/secret.h"

namespace veil {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

// Two texts with the same FNV-1a hash.
constexpr const char* kOneText = "patient 4raorxcltaap#@";
constexpr const char* kOtherText = "patient 2ssilroktjiv'u";

class ProgramReplay : public TrainingTest {
 protected:
  static std::string privately(const std::string& data, const std::string& more) {
    return "train --model llama-tiny --from-scratch --data " + data +
           " --seq-length 24 --device cpu --held-out 0 --delta 1e-4 --accountant rdp "
           "--total-batch-size 8 --batch-size 4 --checkpoint-every 2 " +
           more;
  }
  // Forty documents; the last one is `text`.
  void write_documents(const std::string& folder, const std::string& text) const {
    fs::create_directories(work() / folder);
    std::ofstream file(work() / folder / "all.jsonl");
    for (int i = 0; i < 39; ++i) file << Json{{"text", fmt::format("document {}", i)}} << "\n";
    file << Json{{"text", text}} << "\n";
  }
  std::string secret_file(const std::string& name = "given", int first = 5) const {
    RunSecret secret;
    for (size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<uint8_t>(31 * i + first);
    privacy::write_secret((work() / name).string(), secret);
    return " --secret-file " + (work() / name).string() + " ";
  }
  std::string nonce_of(const std::string& line, const std::string& run) const {
    fs::create_directory(work() / run);
    const Answer answer = veil(line + " --resume " + run);
    EXPECT_EQ(answer.code, kExitDone) << answer.err;
    const std::string nonce = read(work() / run / "ledger.json").value("nonce", "");
    EXPECT_EQ(nonce.size(), 32u);
    return nonce;
  }
  // One plain step on `data`, exported without the digests that would refuse what is changed in it.
  void export_plainly(const std::string& model, const std::string& folder) const {
    const Answer answer = veil("train " + model +
                               " --data data --seq-length 24 --device cpu --held-out 0 --steps 1 "
                               "--batch-size 4 --export " +
                               folder);
    ASSERT_EQ(answer.code, kExitDone) << answer.err;
    fs::remove(work() / folder / "veil_export.json");
  }
  // The line of privately() for the export in `model`.
  static std::string on_the_export(std::string line) {
    const std::string preset = "llama-tiny --from-scratch";
    return line.replace(line.find(preset), preset.size(), "model");
  }
  // A byte of the file, counted from its end, is another; its size and times stay.
  void change_byte(const fs::path& path, int64_t from_end) const {
    struct stat before {};
    ASSERT_EQ(stat(path.c_str(), &before), 0);
    std::string content = text(path);
    content[content.size() - static_cast<size_t>(from_end)] ^= 1;
    std::ofstream(path, std::ios::binary) << content;
    const timespec times[] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
};

TEST_F(ProgramReplay, DocumentsThatCollideUnderTheFastHashGetOtherNoise) {
  ASSERT_EQ(data::content_hash(kOneText), data::content_hash(kOtherText));
  ASSERT_EQ(std::string(kOneText).size(), std::string(kOtherText).size());
  ASSERT_STRNE(kOneText, kOtherText);
  write_documents("one", kOneText);
  write_documents("other", kOtherText);
  const std::string settings = "--sigma 1 --steps 1" + secret_file();
  const std::string nonce = nonce_of(privately("one", settings), "a");
  EXPECT_EQ(nonce_of(privately("one", settings), "b"), nonce) << "the same run is repeated";
  EXPECT_NE(nonce_of(privately("other", settings), "c"), nonce);
}

TEST_F(ProgramReplay, SoDoTokenStoresWhoseFilesClaimTheSameHashes) {
  write_documents("one", kOneText);
  write_documents("other", kOtherText);
  for (const std::string name : {"one", "other"})
    ASSERT_EQ(
        veil("tokenize --data " + name + " --tokenizer bytes --output " + name + ".tokens").code,
        kExitDone);
  const std::string settings = "--sigma 1 --steps 1" + secret_file();
  EXPECT_NE(nonce_of(privately("one.tokens", settings), "a"),
            nonce_of(privately("other.tokens", settings), "b"));
}

// `veil doctor --calibrate` between two parts of a run, or another machine's prices.
TEST_F(ProgramReplay, PricesThatWereMeasuredSinceDoNotChangeTheClipPlanOfARun) {
  write_documents("data", kOneText);
  const std::string cache = "XDG_CACHE_HOME=" + (work() / "cache").string(),
                    prices = (work() / "cache/veil/prices.json").string();
  const auto train = [&](const std::string& run, const std::string& more) {
    fs::create_directories(work() / run);
    const Answer answer = veil(privately("data", "--steps 4 --resume " + run + more), cache);
    EXPECT_EQ(answer.code, kExitDone) << answer.err;
    return answer.out;
  };
  const auto lose_two_steps = [&] {
    fs::remove_all(work() / "run" / "checkpoints" / "step_00000004");
  };
  write_skewed_prices(prices, /*keeping_pays=*/true);
  EXPECT_THAT(train("run", " --sigma 1"), HasSubstr("keep (mode auto)"));
  lose_two_steps();
  write_skewed_prices(prices, /*keeping_pays=*/false);
  EXPECT_THAT(train("new", " --sigma 1"), Not(HasSubstr("keep (mode auto)")))
      << "by these prices another plan is chosen";
  const std::string again = train("run", " --sigma 1");
  EXPECT_THAT(again, HasSubstr("keep (mode auto)"));
  EXPECT_THAT(again, HasSubstr("exact replay"));
  // A run that is another for other reasons takes what is the fastest now.
  lose_two_steps();
  const std::string other = train("run", " --sigma 1.5");
  EXPECT_THAT(other, HasSubstr("fresh nonce"));
  EXPECT_THAT(other, Not(HasSubstr("keep (mode auto)")));
}

TEST_F(ProgramReplay, ADocumentThatWasExchangedIsNoExactReplay) {
  write_documents("data", kOneText);
  fs::create_directory(work() / "run");
  const std::string line = privately("data", "--sigma 1 --steps 4 --resume run");
  ASSERT_EQ(veil(line).code, kExitDone);
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000004");
  write_documents("data", kOtherText);
  const Answer answer = veil(line);
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("fresh nonce, for the data is other; 2 steps"));
}

// Size and times of the file stay, and so does its place among classes.
TEST_F(ProgramReplay, AnImageThatWasExchangedIsNoExactReplay) {
  if (!data::built_with_images()) GTEST_SKIP() << "no libpng or libjpeg";
  const auto write_image = [&](int number, uint8_t colour) {
    const fs::path path = work() / "images" / "dog" / fmt::format("{}.png", number);
    fs::create_directories(path.parent_path());
    data::Picture picture{8, 8, std::vector<uint8_t>(192, colour)};
    data::write_png(path.string(), picture);
    return fs::file_size(path);
  };
  for (int i = 0; i < 20; ++i) write_image(i, static_cast<uint8_t>(7 * i));
  fs::create_directory(work() / "run");
  const std::string line =
      "train --model dit-tiny --image-size 8 --patch-size 2 --from-scratch --data images --device "
      "cpu --sigma 1 --delta 1e-5 --accountant rdp --steps 4 --total-batch-size 4 --batch-size 2 "
      "--held-out 0 --checkpoint-every 2 --resume run";
  const Answer first = veil(line);
  ASSERT_EQ(first.code, kExitDone) << first.err;
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000004");
  const Answer same = veil(line);
  EXPECT_THAT(same.out, HasSubstr("exact replay"));
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000004");
  const auto times = fs::last_write_time(work() / "images/dog/3.png");
  const auto size = fs::file_size(work() / "images/dog/3.png");
  EXPECT_EQ(write_image(3, 22), size);
  fs::last_write_time(work() / "images/dog/3.png", times);
  const Answer answer = veil(line);
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("fresh nonce, for the data is other; 2 steps"));
}

TEST_F(ProgramReplay, WeightsThatDifferInOneByteGetOtherNoise) {
  write_documents("data", "a text");
  ASSERT_NO_FATAL_FAILURE(export_plainly("--model llama-tiny --from-scratch", "model"));
  const std::string line = on_the_export(privately("data", "--sigma 1 --steps 1" + secret_file()));
  const std::string nonce = nonce_of(line, "a");
  fs::last_write_time(work() / "model" / "config.json", fs::file_time_type::clock::now());
  const std::string again = nonce_of(line, "b");
  EXPECT_EQ(again, nonce) << "only bytes count";
  change_byte(work() / "model" / "model.safetensors", 3);
  EXPECT_NE(nonce_of(line, "c"), again);
}

// Weights may be the same and gradients others: by each number of config.json that the model reads.
TEST_F(ProgramReplay, AConfigurationThatWasEditedGetsOtherNoise) {
  write_documents("data", "a text");
  ASSERT_NO_FATAL_FAILURE(export_plainly("--model llama-tiny --from-scratch", "model"));
  const std::string line = on_the_export(privately("data", "--sigma 1 --steps 1" + secret_file()));
  const Json config = read(work() / "model" / "config.json");
  std::set<std::string> nonces = {nonce_of(line, "as_exported")};
  const auto edited = [&](const std::string& key, const Json& value, const std::string& options) {
    SCOPED_TRACE(key);
    Json other = config;
    ASSERT_TRUE(other.contains(key));
    ASSERT_NE(other[key], value);
    other[key] = value;
    std::ofstream(work() / "model" / "config.json") << other;
    EXPECT_TRUE(nonces.insert(nonce_of(line + options, key)).second) << "noise is used again";
  };
  edited("rope_theta", 50.0, "");
  edited("rms_norm_eps", 0.5, "");
  edited("max_position_embeddings", config["max_position_embeddings"].get<int64_t>() / 2, "");
  edited("initializer_range", 0.5, " --from-scratch");

  // Nor is a run continued under its own nonce.
  fs::create_directory(work() / "run");
  std::ofstream(work() / "model" / "config.json") << config;
  const std::string longer = on_the_export(privately("data", "--sigma 1 --steps 4 --resume run"));
  ASSERT_EQ(veil(longer).code, kExitDone);
  const auto continued = [&](const Json& with) {
    fs::remove_all(work() / "run" / "checkpoints" / "step_00000004");
    std::ofstream(work() / "model" / "config.json") << with;
    const Answer answer = veil(longer);
    EXPECT_EQ(answer.code, kExitDone) << answer.err;
    return answer.out;
  };
  EXPECT_THAT(continued(config), HasSubstr("exact replay"));
  Json other = config;
  other["rope_theta"] = 50.0;
  EXPECT_THAT(continued(other),
              HasSubstr("fresh nonce, for the digest of the model's configuration is"));
}

TEST_F(ProgramReplay, AnAdaptersScaleThatWasEditedGetsOtherNoise) {
  write_documents("data", "a text");
  ASSERT_NO_FATAL_FAILURE(export_plainly("--model llama-tiny --from-scratch", "model"));
  ASSERT_NO_FATAL_FAILURE(export_plainly("--model model --lora 4", "adapter"));
  const std::string line =
      on_the_export(privately("data", "--adapter adapter --sigma 1 --steps 1" + secret_file()));
  const std::string nonce = nonce_of(line, "a");
  EXPECT_EQ(nonce_of(line, "b"), nonce);
  Json adapter = read(work() / "adapter" / "adapter_config.json");
  adapter["lora_alpha"] = adapter["lora_alpha"].get<double>() + 32;
  std::ofstream(work() / "adapter" / "adapter_config.json") << adapter;
  EXPECT_NE(nonce_of(line, "c"), nonce);
}

TEST_F(ProgramReplay, ALedgerThatContradictsItsCheckpointIsRefusedWithoutItsSecretToo) {
  write_documents("data", "a text");
  fs::create_directory(work() / "run");
  const std::string line = privately("data", "--sigma 1 --resume run --steps ");
  ASSERT_EQ(veil(line + "2").code, kExitDone);
  Json ledger = read(work() / "run" / "ledger.json");
  ledger["events"][0]["sigma"] = 50.0;
  std::ofstream(work() / "run" / "ledger.json") << ledger;
  fs::remove(work() / "run" / "secret");
  expect_refused(line + "4", "the ledger and the checkpoint tell of other noise");
}

TEST_F(ProgramReplay, ACheckpointWithOtherBytesIsNoExactReplay) {
  write_documents("data", "a text");
  const std::string line = privately("data", "--sigma 1 --steps 6 --keep-checkpoints 3 --resume ");
  fs::create_directory(work() / "run");
  ASSERT_EQ(veil(line + "run").code, kExitDone);
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000006");
  const Answer replay = veil(line + "run");
  ASSERT_EQ(replay.code, kExitDone) << replay.err;
  EXPECT_THAT(replay.out, HasSubstr("exact replay"));
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000006");
  const fs::path checkpoint = work() / "run" / "checkpoints" / "step_00000004";
  const std::string weights = text(checkpoint / "rank_00000.safetensors");
  change_byte(checkpoint / "rank_00000.safetensors", 4);
  const Answer damaged = veil(line + "run");
  EXPECT_EQ(damaged.code, kExitUsage);
  EXPECT_THAT(damaged.err, HasSubstr("rank_00000.safetensors: damaged"));
  std::ofstream(checkpoint / "rank_00000.safetensors", std::ios::binary) << weights;
  // other bytes that say the same
  const std::string state = text(checkpoint / "state.json");
  std::ofstream(checkpoint / "state.json") << state << " ";
  const Answer answer = veil(line + "run");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("fresh nonce, for"));
  EXPECT_THAT(answer.out, Not(HasSubstr("exact replay")));
}

TEST_F(ProgramReplay, AnEnvironmentThatChangesArithmeticIsNoExactReplay) {
  write_documents("data", "a text");
  fs::create_directory(work() / "run");
  const std::string line = privately("data", "--sigma 1 --steps 4 --resume run");
  ASSERT_EQ(veil(line).code, kExitDone);
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000004");
  const Answer answer = veil(line, "ATEN_CPU_CAPABILITY=default");
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("fresh nonce, for the environment is"));
}

TEST_F(ProgramReplay, ATokenBeyondTheVocabularyIsFoundBeforeTheFirstStep) {
  write_documents("data", "a text");
  ASSERT_EQ(veil("tokenize --data data --tokenizer bytes --output all.tokens").code, kExitDone);
  std::string store = text(work() / "all.tokens");
  store[4096 + 2 * 300 + 1] = '\x70';  // the 301st token is 0x70..: far beyond 257
  std::ofstream(work() / "bad.tokens", std::ios::binary) << store;
  expect_refused(privately("bad.tokens", "--sigma 1 --steps 1"), "bad.tokens' is no token store");
  expect_refused(privately("bad.tokens", "--sigma 1 --steps 1"), "at position 300 (document ");
}

TEST_F(ProgramReplay, NoiseThatIsNotCryptographicIsSaidFirstAndExportedOnlyOnRequest) {
  write_documents("data", "a text");
  expect_refused(privately("data", "--sigma 1 --steps 1 --rng philox --export model"),
                 "--rng philox with --export: this noise is not cryptographic");
  const Answer answer = veil(
      privately("data", "--sigma 1 --steps 1 --rng philox --export model --allow-insecure-noise"));
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.err, HasSubstr("WARNING: --rng philox: the noise is not cryptographic"));
  EXPECT_THAT(answer.out, HasSubstr("WARNING     the noise is not cryptographic"));
  EXPECT_THAT(answer.out, HasSubstr("private   the noise is not cryptographic"));
  const Json statement = read(work() / "model" / "privacy.json");
  EXPECT_EQ(statement.begin().key(), "WARNING");
  EXPECT_THAT(statement["WARNING"].get<std::string>(), HasSubstr("not cryptographic"));
  const Answer secure = veil(privately("data", "--sigma 1 --steps 1 --export secure"));
  EXPECT_THAT(secure.out + secure.err, Not(HasSubstr("WARNING")));
}

TEST_F(ProgramReplay, ASecondPrivateTrainingCountsTheFirst) {
  write_documents("data", "a text");
  ASSERT_EQ(veil(privately("data", "--sigma 2 --steps 3 --export first")).code, kExitDone);
  const auto from = [&](const std::string& model, const std::string& more) {
    std::string line = privately("data", more);
    return line.replace(line.find("llama-tiny --from-scratch"), 25, model);
  };
  const double first = read(work() / "first" / "privacy.json")["epsilon"].get<double>();
  expect_refused(from("first", fmt::format("--epsilon {} --steps 3", first * 0.9)),
                 "the model's earlier training has spent");
  fs::create_directory(work() / "run");
  const std::string second =
      from("first", fmt::format("--epsilon {} --steps 4 --resume run --export second", first + 2));
  const Answer answer = veil(second);
  ASSERT_EQ(answer.code, kExitDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("base        epsilon"));
  EXPECT_THAT(answer.out, HasSubstr("this counts 1 training before this one as well"));
  const Json total = read(work() / "second" / "privacy.json");
  EXPECT_LE(total["epsilon"].get<double>(), first + 2);
  EXPECT_GT(total["epsilon"].get<double>(), first);
  EXPECT_EQ(total["base"], read(work() / "first" / "privacy.json"));
  const Json& event = total["events"][0];
  const privacy::Phase before{.sigma = 2, .q = 8.0 / 40, .steps = 3},
      own{.sigma = event["sigma"].get<double>(), .q = event["q"].get<double>(), .steps = 4};
  EXPECT_NEAR(
      total["epsilon"].get<double>(),
      privacy::make_accountant(privacy::AccountantKind::rdp)->epsilon({before, own}, 1e-4).epsilon,
      1e-9);
  // A resume knows the base from its checkpoint, also when the model's folder is gone.
  fs::remove_all(work() / "run" / "checkpoints" / "step_00000004");
  fs::remove(work() / "first" / "privacy.json");
  const Answer again = veil(second + " --overwrite");
  ASSERT_EQ(again.code, kExitDone) << again.err;
  EXPECT_EQ(read(work() / "second" / "privacy.json"), total);
}

TEST_F(ProgramReplay, WhereNoFigureCoversBothNoneIsClaimedAndPlainTrainingSaysSo) {
  write_documents("data", "a text");
  ASSERT_EQ(veil(privately("data", "--sigma 2 --steps 2 --export first")).code, kExitDone);
  const auto from = [&](const std::string& model, const std::string& more) {
    std::string line = privately("data", more);
    return line.replace(line.find("llama-tiny --from-scratch"), 25, model);
  };
  const Answer packed = veil(from("first", "--sigma 2 --steps 2 --samples packed --export packed"));
  ASSERT_EQ(packed.code, kExitDone) << packed.err;
  EXPECT_THAT(packed.err, HasSubstr("no single epsilon covers a person"));
  EXPECT_TRUE(read(work() / "packed" / "privacy.json")["epsilon"].is_null());
  EXPECT_EQ(read(work() / "packed" / "privacy.json")["figures"].size(), 2u);
  const Answer plain = veil(
      "train --model first --data data --seq-length 24 --device cpu --held-out 0 --steps 1 "
      "--batch-size 4 --export plain");
  ASSERT_EQ(plain.code, kExitDone) << plain.err;
  EXPECT_THAT(plain.err, HasSubstr("the data that it trains on has no guarantee"));
  const Json statement = read(work() / "plain" / "privacy.json");
  EXPECT_EQ(statement.begin().key(), "WARNING");
  EXPECT_FALSE(statement["private"].get<bool>());
  EXPECT_EQ(statement["base"], read(work() / "first" / "privacy.json"));
  std::ofstream(work() / "first" / "privacy.json") << "{\"schema\": 1, \"epsilon\": 0.1";
  expect_refused(from("first", "--sigma 2 --steps 2"), "privacy.json: damaged");
  fs::remove(work() / "first" / "veil_export.json");  // which knows its bytes
  expect_refused(from("first", "--sigma 2 --steps 2"), "privacy.json: the model's statement of");
}

// By mpirun itself: the program's own launcher gives every rank the same words and environment.
class ProgramReplayRanks : public ProgramReplay {
 protected:
  void SetUp() override {
    if (!built_with_mpi()) GTEST_SKIP() << "built without MPI";
    write_documents("data", "a text");
    fs::create_directory(work() / "run");
  }
  Answer ranks(const std::string& before, const std::string& more) const {
    std::ofstream(work() / "rank.sh")
        << before + "\nexec '" + veil_program() + "' " +
               privately("data", "--sigma 1 --steps 4 --resume run " + more) + "\n";
    const std::string line =
        "cd '" + work().string() +
        "' && OMP_NUM_THREADS=1 mpirun -n 2 --oversubscribe --bind-to none --quiet "
        "--allow-run-as-root --mca plm isolated --mca pml ob1 --mca btl vader,self "
        "--mca mpi_yield_when_idle 1 sh rank.sh > out 2> err";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text(work() / "out"),
            text(work() / "err")};
  }
};

TEST_F(ProgramReplayRanks, TheThreadsAndEnvironmentOfEveryRankDecide) {
  ASSERT_EQ(ranks("", "").code, kExitDone) << text(work() / "err");
  const auto again = [&](const std::string& before) {
    fs::remove_all(work() / "run" / "checkpoints" / "step_00000004");
    const Answer answer = ranks(before, "");
    EXPECT_EQ(answer.code, kExitDone) << answer.err;
    return answer.out;
  };
  EXPECT_THAT(again(""), HasSubstr("exact replay"));
  EXPECT_THAT(again("[ $OMPI_COMM_WORLD_RANK = 1 ] && export OMP_NUM_THREADS=2"),
              HasSubstr("fresh nonce, for the set of ranks is"));
}

TEST_F(ProgramReplayRanks, ASecretOnEveryRankIsNotSentAndMustBeTheSame) {
  secret_file("secret0", 5);
  secret_file("secret1", 6);
  const Answer other = ranks("", "--secret-file secret$OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(other.code, kExitUsage);
  EXPECT_THAT(other.err, HasSubstr("veil: rank 1: --secret-file secret1: it holds another secret "
                                   "here than on rank 0"));
  EXPECT_TRUE(fs::is_empty(work() / "run")) << "rank 0 began a run that cannot be";
  secret_file("secret1", 5);
  const Answer same = ranks("", "--secret-file secret$OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(same.code, kExitDone) << same.err;
  EXPECT_THAT(same.out, HasSubstr("keys        derived on each rank from its own --secret-file"));
  fs::remove_all(work() / "run");
  fs::create_directory(work() / "run");
  fs::remove(work() / "secret1");
  const Answer sent = ranks("", "--secret-file secret$OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(sent.code, kExitDone) << sent.err;
  EXPECT_THAT(sent.out, HasSubstr("keys        sent to the other ranks unencrypted"));
}

}  // namespace
}  // namespace veil
