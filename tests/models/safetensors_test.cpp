#include "models/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/test_weight_files.h"

namespace veil {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Safetensors : public ::testing::Test {
 protected:
  // What opening a file with this header and these data bytes complains of.
  std::string opening(const std::string& header, size_t data_bytes = 0) const {
    const std::string path = files_.raw("bad.safetensors", header, data_bytes);
    return complaint([&] { SafetensorsFile file(path); });
  }
  WeightFiles files_;
};

TEST_F(Safetensors, WhatIsWrittenIsReadBack) {
  const std::string path = files_.path("a.safetensors");
  const TensorSource bytes{.name = "é \"quoted\"",
                           .dtype = StoredType::u8,
                           .dims = {3},
                           .produce = [](const AppendBytes& append) {
                             append("ab");
                             append("c");
                           }};
  write_safetensors(path, {bytes, float_source("w", {2, 2}, {1, 2, 3, 4}),
                           float_source("scalar", {}, {7}), float_source("empty", {0, 5}, {})});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(bytes_of(file, "é \"quoted\""), "abc");
  ASSERT_TRUE(file.find("w"));
  EXPECT_EQ(file.find("w")->dims, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(file.find("w")->elements, 4);
  EXPECT_EQ(file.find("scalar")->elements, 1);
  EXPECT_TRUE(file.find("scalar")->dims.empty());
  EXPECT_EQ(file.find("empty")->elements, 0);
  float values[4];
  ASSERT_EQ(bytes_of(file, "w").size(), sizeof values);
  std::memcpy(values, bytes_of(file, "w").data(), sizeof values);
  EXPECT_EQ(values[3], 4.0F);
  EXPECT_EQ(file.find("none"), nullptr);
}

TEST_F(Safetensors, TheFileIsLaidOutAsTheFormatSays) {
  const std::string path = files_.path("a.safetensors");
  write_safetensors(path, {float_source("w", {2}, {1, 2})});
  const std::string content = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, content.data(), sizeof length);
  EXPECT_EQ(length % 8, 0u) << "the data are not aligned";
  EXPECT_EQ(content.size(), 8 + length + 8);
  std::string header = content.substr(8, length);
  while (header.ends_with(' ')) header.pop_back();
  EXPECT_EQ(
      header,
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})");
}

TEST_F(Safetensors, AWriterThatFailsLeavesNothing) {
  const TensorSource failing{
      .name = "w", .dtype = StoredType::f32, .dims = {2}, .produce = [](const AppendBytes& append) {
        append("1234");
        throw UserError("no more");
      }};
  EXPECT_EQ(complaint([&] { write_safetensors(files_.path("a.safetensors"), {failing}); }),
            "no more");
  const TensorSource short_of{
      .name = "w", .dtype = StoredType::f32, .dims = {2}, .produce = [](const AppendBytes& append) {
        append("1234");
      }};
  EXPECT_THROW(write_safetensors(files_.path("a.safetensors"), {short_of}), std::logic_error);
  EXPECT_TRUE(std::filesystem::is_empty(files_.path()));
}

TEST_F(Safetensors, AFileCutAnywhereIsRefusedByName) {
  const std::string path = files_.path("whole.safetensors");
  write_safetensors(path, {float_source("a", {3}, {1, 2, 3}), float_source("b", {2}, {4, 5})});
  const std::string whole = read_file(path);
  for (size_t length = 0; length < whole.size(); ++length) {
    write_file_atomically(files_.path("cut.safetensors"), whole.substr(0, length));
    const std::string line =
        complaint([&] { SafetensorsFile file(files_.path("cut.safetensors")); });
    EXPECT_THAT(line, HasSubstr("cut.safetensors")) << length;
  }
  write_file_atomically(files_.path("longer.safetensors"), whole + "x");
  EXPECT_THAT(complaint([&] { SafetensorsFile file(files_.path("longer.safetensors")); }),
              HasSubstr("belong to no tensor"));
}

TEST_F(Safetensors, EveryByteChangedIsReadOrRefusedAndNeverWorse) {
  const std::string path = files_.path("whole.safetensors");
  write_safetensors(path, {float_source("a", {3}, {1, 2, 3}), float_source("b", {2}, {4, 5})});
  const std::string whole = read_file(path);
  int refused = 0;
  for (size_t place = 0; place + 20 < whole.size(); ++place) {  // all but the data
    for (const char other : {'\0', '\xff', '9', '"', '{'}) {
      std::string content = whole;
      content[place] = other;
      write_file_atomically(files_.path("changed.safetensors"), content);
      const std::string line = complaint([&] {
        const SafetensorsFile file(files_.path("changed.safetensors"));
        for (const StoredTensor& tensor : file.tensors()) {
          EXPECT_EQ(static_cast<int64_t>(file.bytes(tensor).size()),
                    tensor.elements * stored_bits(tensor.dtype) / 8);
        }
      });
      refused += line.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 500);
}

struct Hostile {
  const char* header;
  size_t data_bytes;
  const char* says;
};

TEST_F(Safetensors, HostileHeadersAreRefusedInOneLineThatNamesTheTensor) {
  const Hostile cases[] = {
      {"[]", 0, "not a JSON object"},
      {" {}", 0, "not a JSON object"},
      {"7", 0, "not a JSON object"},
      {"{", 0, "not JSON"},
      {"{} x", 0, "not JSON"},
      {"{\"\xff\xfe\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
       "not JSON in UTF-8"},
      {R"({"w":3})", 0, "tensor 'w' is not described by an object"},
      {R"({"w":{"shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'w' has no 'dtype'"},
      {R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", 4, "tensor 'w' has no 'shape'"},
      {R"({"w":{"dtype":"F32","shape":[1]}})", 4, "tensor 'w' has no 'data_offsets'"},
      {R"({"w":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4,
       "tensor 'w' has dtype \"F33\""},
      {R"({"w":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'w' has dtype"},
      {R"({"w":{"dtype":7,"shape":[1],"data_offsets":[0,4]}})", 4, "tensor 'w' has dtype 7"},
      {R"({"w":{"dtype":"F32","shape":4,"data_offsets":[0,4]}})", 4,
       "tensor 'w': its shape is not a list"},
      {R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
       "tensor 'w': shape holds -1"},
      {R"({"w":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4,
       "tensor 'w': shape holds 1.0"},
      {R"({"w":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
       "tensor 'w': shape holds"},
      {R"({"w":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4,
       "tensor 'w': shape holds"},
      {R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "tensor 'w': shape"},
      {R"({"w":{"dtype":"F32","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0,
       "more elements than 64 bits"},
      {R"({"w":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807,0],"data_offsets":[0,0]}})",
       0, "'w'"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
       "tensor 'w': F32 [2] takes 8 bytes, but its offsets span 4"},
      {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
       "tensor 'w' ends at byte 8 of 4"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", 8,
       "tensor 'w' ends at 4 before it begins at 8"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 8,
       "tensor 'w': data_offsets holds -4"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 8,
       "tensor 'w': data_offsets is not [begin, end]"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8,
       "4 bytes before tensor 'w' belong to none"},
      {R"({"w":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2,
       "tensor 'w' ends inside a byte"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       12, "tensor 'b' overlaps tensor 'a'"},
      {R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "'w' is there twice"},
      {R"({"w":{"dtype":"F32","dtype":"F64","shape":[1],"data_offsets":[0,4]}})", 4,
       "'dtype' is there twice"},
      {R"({"w":{"dtype":"F32","shape":[[[1]]],"data_offsets":[0,4]}})", 4, "nested deeper"},
      {R"({"__metadata__":[]})", 0, "__metadata__ is not an object"},
      {R"({"__metadata__":{"format":1}})", 0, "__metadata__: 'format' is not text"},
      {R"({"line\nbreak":3})", 0, "tensor 'line\\x0abreak'"},
  };
  for (const Hostile& one : cases) {
    const std::string line = opening(one.header, one.data_bytes);
    EXPECT_THAT(line, HasSubstr(one.says)) << one.header;
    EXPECT_THAT(line, HasSubstr("bad.safetensors"));
  }
}

TEST_F(Safetensors, AHeaderThatClaimsToBeHugeIsRefusedUnread) {
  for (const uint64_t length :
       {~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{100'000'001}, uint64_t{1} << 40, uint64_t{3}}) {
    std::string content(reinterpret_cast<const char*>(&length), sizeof length);
    write_file_atomically(files_.path("huge.safetensors"), content + "{}");
    EXPECT_THAT(complaint([&] { SafetensorsFile file(files_.path("huge.safetensors")); }),
                HasSubstr("header of"))
        << length;
  }
}

TEST_F(Safetensors, WhatIsNoFileIsRefused) {
  EXPECT_THAT(complaint([&] { SafetensorsFile file(files_.path("none")); }),
              StartsWith("cannot read"));
  EXPECT_THAT(complaint([&] { SafetensorsFile file(files_.path()); }), HasSubstr("not a file"));
  ASSERT_EQ(mkfifo(files_.path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(complaint([&] { SafetensorsFile file(files_.path("pipe")); }),
              HasSubstr("not a file"));
}

TEST_F(Safetensors, DtypesThatAreNotConvertedAreStillListed) {
  const SafetensorsFile file(files_.raw(
      "types.safetensors",
      R"({"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},)"
      R"("b":{"dtype":"BOOL","shape":[1],"data_offsets":[2,3]},"c":{"dtype":"F4","shape":[2],"data_offsets":[3,4]}})",
      4));
  EXPECT_EQ(file.find("a")->dtype, StoredType::f8_e4m3);
  EXPECT_EQ(file.find("b")->dtype, StoredType::boolean);
  EXPECT_EQ(file.find("c")->end - file.find("c")->begin, 1);
}

}  // namespace
}  // namespace veil
