// Requests to a web server, as little of HTTP as a hub needs, and the checksums of what it sends. A
// build without libcurl and OpenSSL answers each with MissingBackend.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace veil {

bool built_with_http();
std::string http_library_version();  // "libcurl/7.88.1", or "" in a build without it

struct HttpAnswer {
  int status = 0;                              // 0: no answer came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // of get(), and of a download that was refused
  std::string trouble;     // why the connection failed or broke off; "" if it did not
  bool try_again = false;  // whether that may pass by itself
  std::string header(const std::string& name) const;  // "" if there is none
};

// One connection, kept open between requests. No redirect is followed, no secret is put into a
// message. Servers that send less than 1 KiB per second for `slow_s` seconds count as broken off.
// Certificates are checked; only http and https are spoken.
class HttpClient {
 public:
  // `authorities`: a file of certificates, by which the others are checked; "": the system's.
  explicit HttpClient(int slow_s = 60, const std::string& authorities = "");
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  using Headers = std::vector<std::string>;  // "Name: value", without line ends
  HttpAnswer head(const std::string& url, const Headers& headers);
  // Breaks off after 64 MiB: for answers that are held in memory.
  HttpAnswer get(const std::string& url, const Headers& headers);
  // Hands the body over as it comes. `begin` is called before the first byte, and only if the
  // status is 200 or 206; what either throws ends the request and is passed on.
  HttpAnswer download(const std::string& url, const Headers& headers,
                      const std::function<void(const HttpAnswer&)>& begin,
                      const std::function<void(std::string_view)>& take);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "https://host:port", the port always there. "" for what is no http or https address, and for one
// with a user or a password in it.
std::string url_origin(const std::string& url);
// Where a redirect leads; "" if it leads nowhere sensible.
std::string resolve_url(const std::string& base, const std::string& location);
// Bytes other than letters, digits and -._~ as %XX; '/' stays if `keep_slashes`.
std::string url_quoted(std::string_view text, bool keep_slashes);

// By which a hub names its files. git_blob: the SHA-1 of "blob LENGTH\0" and the content
enum class DigestKind { sha256, git_blob };

class Digest {
 public:
  // `length` is the content's, which git's checksum takes in first.
  Digest(DigestKind kind, int64_t length);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  void add(std::string_view bytes);
  std::string hex();  // of all that was added; ends the digest

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace veil
