#include "data/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/files.h"
#include "data/http.h"
#include "models/test_weight_files.h"

namespace veil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

TEST(Hub, ThePlacesAreThoseOfTheHubsOwnTools) {
  EXPECT_EQ(hub_cache_root({.hf_home = "",
                            .hf_hub_cache = "",
                            .hf_token_path = "",
                            .xdg_cache_home = "",
                            .home = "/me"}),
            "/me/.cache/huggingface/hub");
  EXPECT_EQ(hub_cache_root({.hf_home = "",
                            .hf_hub_cache = "",
                            .hf_token_path = "",
                            .xdg_cache_home = "/x",
                            .home = "/me"}),
            "/x/huggingface/hub");
  const HubVariables home{.hf_home = "/hf",
                          .hf_hub_cache = "",
                          .hf_token_path = "",
                          .xdg_cache_home = "/x",
                          .home = "/me"};
  EXPECT_EQ(hub_cache_root(home), "/hf/hub");
  EXPECT_EQ(hub_token_file(home), "/hf/token");
  const HubVariables all{.hf_home = "/hf",
                         .hf_hub_cache = "/c",
                         .hf_token_path = "/t",
                         .xdg_cache_home = "/x",
                         .home = "/me"};
  EXPECT_EQ(hub_cache_root(all), "/c");
  EXPECT_EQ(hub_token_file(all), "/t");
  EXPECT_EQ(hub_model_folder("/c", "org/name"), "/c/models--org--name");
  EXPECT_EQ(hub_model_folder("/c", "gpt2"), "/c/models--gpt2");
}

TEST(Hub, NamesThatAHubAllowsAreAllowed) {
  for (const char* name : {"gpt2", "meta-llama/Llama-3.1-8B-Instruct", "a/b_c.d"})
    EXPECT_TRUE(is_hub_id(name)) << name;
  for (const char* name : {"", "/", "a/", "/a", "a/b/c", "../a", "a/..", "a--b/c", "-a/b", "a/b.",
                           "a b", "a/b\n", "a/b?x", "ä/b", "a/b.git"}) {
    EXPECT_FALSE(is_hub_id(name)) << name;
  }
}

TEST(Hub, PathsThatLeadOutOfTheFolderAreNotSafe) {
  for (const char* path : {"a", "a/b.json", "..a", "a..b/c", ".hidden"})
    EXPECT_TRUE(is_safe_path(path)) << path;
  for (const char* path :
       {"", "/a", "a/", "../a", "a/../b", "a/..", ".", "./a", "a//b", "a\\b", "a\nb", "a\x7f"})
    EXPECT_FALSE(is_safe_path(path)) << path;
  EXPECT_FALSE(is_safe_path(std::string("a\0b", 3)));
  EXPECT_FALSE(is_safe_path(std::string(256, 'a')));
}

TEST(Hub, AModelIsAFolderOrASnapshotInTheCache) {
  const WeightFiles files;
  const std::string cache = files.path("cache"), folder = files.path("cache/models--org--name");
  EXPECT_FALSE(resolve_model_folder("org/name", cache));
  write_file_atomically(folder + "/refs/main", "abc\n");
  EXPECT_FALSE(resolve_model_folder("org/name", cache)) << "the ref alone is no model";
  write_file_atomically(folder + "/snapshots/abc/config.json", "{}");
  EXPECT_EQ(resolve_model_folder("org/name", cache), folder + "/snapshots/abc");
  EXPECT_EQ(resolve_model_folder("org/name", cache, "abc"), folder + "/snapshots/abc");
  EXPECT_FALSE(resolve_model_folder("org/name", cache, "other"));
  EXPECT_FALSE(resolve_model_folder("org/name", cache, "../refs"));
  EXPECT_FALSE(resolve_model_folder("org/other", cache));
  write_file_atomically(folder + "/refs/evil", "../../../own");
  write_file_atomically(files.path("own/config.json"), "{}");
  EXPECT_FALSE(resolve_model_folder("org/name", cache, "evil"));
  EXPECT_EQ(resolve_model_folder(files.path("own"), cache), files.path("own"));

  EXPECT_THAT(complaint([&] { model_not_found("org/none", cache); }),
              HasSubstr("`veil fetch org/none` downloads it"));
  EXPECT_THAT(complaint([&] { model_not_found("a b", cache); }),
              HasSubstr("a folder with config.json and a hub's name"));
  fs::create_directories(files.path("empty"));
  EXPECT_THAT(complaint([&] { model_not_found(files.path("empty"), cache); }),
              HasSubstr("this folder has no config.json"));
}

TEST(Hub, AModelNeedsItsConfigurationTokenizerAndOneLayoutOfItsWeights) {
  EXPECT_THAT(
      files_of_a_model({".gitattributes", "README.md", "config.json", "consolidated.safetensors",
                        "generation_config.json", "merges.txt", "model-00001-of-00002.safetensors",
                        "model-00002-of-00002.safetensors", "model.safetensors.index.json",
                        "onnx/model.safetensors", "original/consolidated.00.pth",
                        "pytorch_model.bin", "tokenizer.json"}),
      ElementsAre("config.json", "generation_config.json", "merges.txt",
                  "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                  "model.safetensors.index.json", "tokenizer.json"));
  EXPECT_THAT(files_of_a_model({"weights.safetensors", "x.bin"}),
              ElementsAre("weights.safetensors"));
}

TEST(Hub, ChecksumsAreTheKnownOnes) {
  if (!built_with_http()) GTEST_SKIP() << "without libcurl and OpenSSL";
  Digest large(DigestKind::sha256, 3);
  large.add("a");
  large.add("bc");
  EXPECT_EQ(large.hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest small(DigestKind::git_blob, 6);
  small.add("hello\n");
  EXPECT_EQ(small.hex(), "ce013625030ba8dba906f756967f9e9ca394464a");
}

TEST(Hub, AddressesAreTakenApartAsCurlDoes) {
  if (!built_with_http()) GTEST_SKIP() << "without libcurl and OpenSSL";
  EXPECT_EQ(url_origin("https://Hub.example/a/b?c"), "https://hub.example:443");
  EXPECT_EQ(url_origin("http://hub.example:81"), "http://hub.example:81");
  for (const char* url : {"", "hub.example", "ftp://hub.example", "file:///etc/passwd",
                          "https://me:secret@hub.example", "https://me@hub.example"}) {
    EXPECT_EQ(url_origin(url), "") << url;
  }
  EXPECT_EQ(resolve_url("https://h/a/b", "/c?d=1"), "https://h/c?d=1");
  EXPECT_EQ(resolve_url("https://h/a/b", "https://other/x"), "https://other/x");
  EXPECT_EQ(resolve_url("https://h/a/b", "file:///etc/passwd"), "");
  EXPECT_EQ(resolve_url("https://h/a/b", ""), "");
  EXPECT_EQ(url_quoted("a b/ü#", true), "a%20b/%C3%BC%23");
  EXPECT_EQ(url_quoted("refs/pr/1", false), "refs%2Fpr%2F1");
}

TEST(Hub, ABuildWithoutCurlSaysSo) {
  if (built_with_http()) {
    EXPECT_THAT(http_library_version(), HasSubstr("libcurl/"));
    return;
  }
  EXPECT_EQ(http_library_version(), "");
  EXPECT_THROW(HttpClient(), MissingBackend);
}

}  // namespace
}  // namespace veil
