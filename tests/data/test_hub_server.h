// A model hub on this machine, with a second server that it points to for large files, as the real
// one does. Its faults are set by tests.
#pragma once

#include <atomic>
#include <deque>

#include "data/test_http_server.h"

namespace veil {

class TestHubServer {
 public:
  TestHubServer();

  // A large file has its SHA-256 for a name and lies on the other server; a small one has git's
  // checksum and is here.
  void add(const std::string& name, const std::string& content, bool large);
  std::string checksum(const std::string& name) const;
  std::string content(const std::string& name) const { return files_.at(name).content; }

  std::string endpoint() const { return hub_.address(); }
  TestHttpServer& hub() { return hub_; }
  TestHttpServer& store() { return store_; }
  // How often a file's bytes were requested, at either server.
  int downloads(const std::string& name) const;

  std::string model = "org/tiny";
  std::string commit = std::string(40, 'c');
  std::string token;                        // required if not ""
  bool gated = false;                       // files are refused, as for an account without access
  std::vector<std::string> listed_besides;  // names in the listing that have no file
  // by file: bytes after which the next downloads end, one each
  std::map<std::string, std::deque<int64_t>> cuts;
  std::map<std::string, std::string> instead;  // by file: what is sent instead of its content
  // by file: its X-Linked-Size or ETag instead of the right one, "Name: value"
  std::map<std::string, std::string> headers_besides;
  // Whole answers instead of the right ones: by a file's name, and of its bytes at the other server
  // by "bytes of " and the name; of the listing by "listing".
  std::map<std::string, TestAnswer> hostile;
  std::deque<int> busy;  // statuses of the next answers, before all else
  bool ranges = true;    // whether a part can be requested

 private:
  struct File {
    std::string content, checksum;
    bool large = false;
  };
  TestAnswer answer_hub(const TestRequest& request);
  TestAnswer answer_store(const TestRequest& request);
  TestAnswer bytes(const std::string& name, const TestRequest& request);

  std::map<std::string, File> files_;
  std::map<std::string, std::string> names_in_store_;  // by checksum
  TestHttpServer hub_, store_;
};

}  // namespace veil
