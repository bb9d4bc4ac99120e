// One hub, one model: requests that carry the token where it belongs, try again what may pass, and
// say in one line what a refusal means.
#pragma once

#include <functional>
#include <string>

#include "data/http.h"

namespace veil {

struct FetchRequest {
  std::string model;  // "org/name"
  std::string revision = "main";
  std::string endpoint = "https://huggingface.co";
  std::string cache_root;
  // "" for none. It is sent to the endpoint alone, never to a host that the endpoint points to
  std::string token;
  std::string authorities = "";  // as HttpClient takes them
  bool all = false;  // every file of the repository, not only what files_of_a_model() keeps
  bool dry_run = false;
  int attempts = 5;             // in a row that receive less than a MiB
  int64_t first_wait_ms = 500;  // before the second attempt; doubled before each further one
  int slow_s = 60;              // below 1 KiB per second for so long is a broken connection
};

class HubSession {
 public:
  // Checks the endpoint and the token's form. `tell` hears of retries.
  HubSession(const FetchRequest& request, std::function<void(const std::string&)> tell);

  // {endpoint}/api/models/{id}/revision/{revision}: the commit and the names of its files, each
  // checked.
  struct Listing {
    std::string commit;
    std::vector<std::string> files;
  };
  Listing list();

  // Checksum and size of a file, from the hub itself.
  struct FileFacts {
    std::string checksum;  // 40 or 64 hexadecimal digits
    int64_t bytes = 0;
  };
  FileFacts facts(const std::string& commit, const std::string& file);

  // The file's bytes from `held()` on, if that is not 0 and the server can; held() is asked
  // before each attempt. `begin` is told where the bytes that follow belong: at held() or at 0.
  void download(const std::string& commit, const std::string& file,
                const std::function<int64_t()>& held, const std::function<void(int64_t)>& begin,
                const std::function<void(std::string_view)>& take);

 private:
  // Repeats `ask` while it fails in a way that may pass, then answers its last answer. `received`
  // counts the bytes that came so far.
  HttpAnswer persist(const std::string& what, const std::function<HttpAnswer()>& ask,
                     const std::function<int64_t()>& received);
  HttpClient::Headers headers_for(const std::string& url) const;
  std::string file_url(const std::string& commit, const std::string& file) const;
  [[noreturn]] void refuse(const HttpAnswer& answer, const std::string& what,
                           const std::string& file) const;

  const FetchRequest& request_;
  std::function<void(const std::string&)> tell_;
  std::string endpoint_, origin_;
  HttpClient client_;
};

}  // namespace veil
