#include <curl/curl.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <exception>
#include <mutex>

#include "base/error.h"
#include "base/text.h"
#include "data/http.h"

namespace veil {

namespace {

constexpr size_t kMostBody = size_t{64} << 20;
constexpr size_t kMostRefusal = size_t{64} << 10;
constexpr size_t kMostHeaders = size_t{1} << 20;
constexpr long kSlowest = 1024;  // bytes per second

void start_library() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  return std::string(text);
}

// Failures that another try may not meet: what a busy server or a bad line brings.
bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
      return true;
    default:
      return false;
  }
}

// One request on its way. libcurl calls back through C, so what is thrown is kept until it has
// returned.
struct Transfer {
  CURL* handle = nullptr;
  HttpAnswer answer;
  size_t header_bytes = 0;
  bool in_memory = true, begun = false, too_large = false;
  const std::function<void(const HttpAnswer&)>* begin = nullptr;
  const std::function<void(std::string_view)>* take = nullptr;
  std::exception_ptr thrown;

  size_t header(std::string_view line) {
    header_bytes += line.size();
    if (header_bytes > kMostHeaders) {
      too_large = true;
      return 0;
    }
    if (line.starts_with("HTTP/")) answer.headers.clear();  // an interim answer came before
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return line.size();
    std::string name(line.substr(0, colon));
    for (char& letter : name)
      letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    answer.headers[name] = trimmed(line.substr(colon + 1));
    return line.size();
  }

  int status() const {
    long code = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &code);
    return static_cast<int>(code);
  }

  size_t body(std::string_view bytes) {
    answer.status = status();
    const bool wanted = answer.status == 200 || answer.status == 206;
    if (in_memory || !wanted) {
      const size_t most = wanted ? kMostBody : kMostRefusal;
      if (wanted && bytes.size() > most - answer.body.size()) {
        too_large = true;
        return 0;
      }
      answer.body += bytes.substr(0, most - std::min(most, answer.body.size()));
      return bytes.size();
    }
    try {
      start();
      (*take)(bytes);
    } catch (...) {
      thrown = std::current_exception();
      return 0;
    }
    return bytes.size();
  }

  void start() {
    if (!begun) (*begin)(answer);
    begun = true;
  }
};

size_t header_callback(char* data, size_t size, size_t count, void* transfer) {
  return static_cast<Transfer*>(transfer)->header({data, size * count});
}

size_t body_callback(char* data, size_t size, size_t count, void* transfer) {
  return static_cast<Transfer*>(transfer)->body({data, size * count});
}

class UrlHandle {
 public:
  explicit UrlHandle(const std::string& url) : handle_(curl_url()) {
    good_ = handle_ && curl_url_set(handle_, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK;
  }
  ~UrlHandle() { curl_url_cleanup(handle_); }
  UrlHandle(const UrlHandle&) = delete;
  UrlHandle& operator=(const UrlHandle&) = delete;

  bool good() const { return good_; }
  // Resolves another address against this one.
  bool go(const std::string& location) {
    return curl_url_set(handle_, CURLUPART_URL, location.c_str(), 0) == CURLUE_OK;
  }
  std::string part(CURLUPart which, unsigned flags = 0) const {
    char* text = nullptr;
    if (!good_ || curl_url_get(handle_, which, &text, flags) != CURLUE_OK) return "";
    std::string result = text;
    curl_free(text);
    return result;
  }

 private:
  CURLU* handle_;
  bool good_ = false;
};

}  // namespace

struct HttpClient::State {
  CURL* handle = nullptr;
  int slow_s = 60;
  std::string authorities;

  HttpAnswer perform(const std::string& url, const Headers& headers, Transfer& transfer,
                     bool head_only) {
    curl_easy_reset(handle);
    char message[CURL_ERROR_SIZE] = "";
    curl_slist* list = nullptr;
    for (const std::string& header : headers) list = curl_slist_append(list, header.c_str());
    transfer.handle = handle;
    curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
    curl_easy_setopt(handle, CURLOPT_HTTPHEADER, list);
    curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(handle, CURLOPT_NOBODY, head_only ? 1L : 0L);
    curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, kSlowest);
    curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, static_cast<long>(slow_s));
    curl_easy_setopt(handle, CURLOPT_USERAGENT, "veil");
    if (!authorities.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, authorities.c_str());
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, message);
    curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, header_callback);
    curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
    curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, body_callback);
    curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
    const CURLcode code = curl_easy_perform(handle);
    transfer.answer.status = transfer.status();
    curl_slist_free_all(list);
    curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
    if (transfer.thrown) std::rethrow_exception(transfer.thrown);
    if (code != CURLE_OK) {
      transfer.answer.trouble = transfer.too_large
                                    ? "the answer is too large"
                                    : printable(message[0] ? message : curl_easy_strerror(code));
      transfer.answer.try_again = !transfer.too_large && may_pass(code);
    }
    return std::move(transfer.answer);
  }
};

bool built_with_http() {
  return true;
}

std::string http_library_version() {
  const std::string version = curl_version();
  return version.substr(0, version.find(' '));
}

HttpClient::HttpClient(int slow_s, const std::string& authorities)
    : state_(std::make_unique<State>()) {
  start_library();
  state_->slow_s = slow_s;
  state_->authorities = authorities;
  state_->handle = curl_easy_init();
  VEIL_CHECK(state_->handle, "libcurl does not start");
}

HttpClient::~HttpClient() {
  curl_easy_cleanup(state_->handle);
}

HttpAnswer HttpClient::head(const std::string& url, const Headers& headers) {
  Transfer transfer;
  return state_->perform(url, headers, transfer, true);
}

HttpAnswer HttpClient::get(const std::string& url, const Headers& headers) {
  Transfer transfer;
  return state_->perform(url, headers, transfer, false);
}

HttpAnswer HttpClient::download(const std::string& url, const Headers& headers,
                                const std::function<void(const HttpAnswer&)>& begin,
                                const std::function<void(std::string_view)>& take) {
  Transfer transfer;
  transfer.in_memory = false;
  transfer.begin = &begin;
  transfer.take = &take;
  HttpAnswer answer = state_->perform(url, headers, transfer, false);
  const bool wanted = answer.status == 200 || answer.status == 206;
  if (wanted && !transfer.begun && answer.trouble.empty()) begin(answer);  // an empty body
  return answer;
}

std::string url_origin(const std::string& url) {
  const UrlHandle parsed(url);
  const std::string scheme = parsed.part(CURLUPART_SCHEME), host = parsed.part(CURLUPART_HOST);
  if ((scheme != "http" && scheme != "https") || host.empty()) return "";
  if (!parsed.part(CURLUPART_USER).empty() || !parsed.part(CURLUPART_PASSWORD).empty()) return "";
  std::string lower = host;
  for (char& letter : lower)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return fmt::format("{}://{}:{}", scheme, lower, parsed.part(CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string resolve_url(const std::string& base, const std::string& location) {
  UrlHandle parsed(base);
  if (!parsed.good() || location.empty() || !parsed.go(location)) return "";
  const std::string url = parsed.part(CURLUPART_URL);
  return url_origin(url).empty() ? "" : url;
}

struct Digest::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  State() = default;
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

Digest::Digest(DigestKind kind, int64_t length) : state_(std::make_unique<State>()) {
  const EVP_MD* const algorithm = kind == DigestKind::sha256 ? EVP_sha256() : EVP_sha1();
  VEIL_CHECK(state_->context && EVP_DigestInit_ex(state_->context, algorithm, nullptr) == 1,
             "OpenSSL has no such sum");
  if (kind == DigestKind::git_blob) {
    std::string title = fmt::format("blob {}", length);
    title += '\0';
    add(title);
  }
}

Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(std::string_view bytes) {
  VEIL_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1,
             "OpenSSL stopped summing");
}

std::string Digest::hex() {
  unsigned char sum[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  VEIL_CHECK(EVP_DigestFinal_ex(state_->context, sum, &length) == 1, "OpenSSL stopped summing");
  std::string result;
  for (unsigned i = 0; i < length; ++i) result += fmt::format("{:02x}", sum[i]);
  return result;
}

}  // namespace veil
