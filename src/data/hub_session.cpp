#include "data/hub_session.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "data/hub.h"

namespace veil {

using nlohmann::json;

namespace {

constexpr int kMostRedirects = 10;
constexpr int64_t kProgressThatCounts = kMiB;
constexpr int64_t kLongestWait_ms = 60'000;

template <typename... Args>
[[noreturn]] void hub_failed(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...), kExitFailed);
}

bool is_hex(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char letter) {
    return (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'f');
  });
}

bool is_checksum(const std::string& text) {
  return (text.size() == 40 || text.size() == 64) && is_hex(text);
}

// W/"abc" and "abc" as abc.
std::string bare_etag(std::string text) {
  if (text.starts_with("W/")) text = text.substr(2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    text = text.substr(1, text.size() - 2);
  return text;
}

std::optional<int64_t> natural(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0)
    return {};
  return value;
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

bool is_busy(int status) {
  return status == 408 || status == 429 || status >= 500;
}

}  // namespace

HubSession::HubSession(const FetchRequest& request, std::function<void(const std::string&)> tell)
    : request_(request),
      tell_(std::move(tell)),
      endpoint_(request.endpoint),
      client_(request.slow_s, request.authorities) {
  while (endpoint_.ends_with('/')) endpoint_.pop_back();
  origin_ = url_origin(endpoint_);
  if (origin_.empty()) {
    field_error("endpoint",
                "must be an address like https://huggingface.co, with no user or password in it");
  }
  const bool printed = std::all_of(request.token.begin(), request.token.end(),
                                   [](char c) { return c > 0x20 && c < 0x7F; });
  if (!printed)
    user_error("the token has a space, a line end or another character that no token has");
}

HttpClient::Headers HubSession::headers_for(const std::string& url) const {
  HttpClient::Headers headers = {"Accept-Encoding: identity"};  // sizes are then those of the files
  // The endpoint points to other hosts for large files; what they may see is the address, never the
  // token.
  if (!request_.token.empty() && url_origin(url) == origin_)
    headers.push_back("Authorization: Bearer " + request_.token);
  return headers;
}

std::string HubSession::file_url(const std::string& commit, const std::string& file) const {
  return fmt::format("{}/{}/resolve/{}/{}", endpoint_, request_.model, commit,
                     url_quoted(file, true));
}

HttpAnswer HubSession::persist(const std::string& what, const std::function<HttpAnswer()>& ask,
                               const std::function<int64_t()>& received) {
  int failures = 0;
  int64_t wait_ms = request_.first_wait_ms;
  while (true) {
    const int64_t before = received();
    HttpAnswer answer = ask();
    const bool broken = !answer.trouble.empty();
    if (broken ? !answer.try_again : !is_busy(answer.status)) return answer;
    if (received() - before >= kProgressThatCounts) {
      failures = 0;
      wait_ms = request_.first_wait_ms;
    }
    if (++failures >= request_.attempts) return answer;
    int64_t pause_ms = wait_ms;
    if (const auto asked_s = natural(answer.header("retry-after")))
      pause_ms = std::max(pause_ms, std::min(*asked_s, kLongestWait_ms / 1000) * 1000);
    tell_(fmt::format("{}: {}; trying again", what,
                      broken ? answer.trouble : fmt::format("the hub answers {}", answer.status)));
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    wait_ms = std::min(wait_ms * 2, kLongestWait_ms);
  }
}

void HubSession::refuse(const HttpAnswer& answer, const std::string& what,
                        const std::string& file) const {
  const std::string code = answer.header("x-error-code");
  const std::string page = fmt::format("{}/{}", endpoint_, request_.model);
  const std::string give_token = fmt::format(
      "make a token with read access at {}/settings/tokens and pass it as `token`, in HF_TOKEN or "
      "by "
      "`hf auth login`",
      endpoint_);
  if (!answer.trouble.empty()) {
    hub_failed("{}: {}{}", what, answer.trouble,
               file.empty() ? "" : "; the same command continues where this one stopped");
  }
  if (code == "RevisionNotFound")
    user_error("model {} has no revision '{}'", request_.model, printable(request_.revision));
  if (code == "EntryNotFound")
    hub_failed("{}: the hub lists '{}' and does not have it", what, printable(file));
  if (answer.status == 401 && code != "GatedRepo") {
    user_error("{}: 401, {}: there is no such model at {}, or it is private or gated; {}", what,
               request_.token.empty() ? "no token was given" : "the token is not accepted", page,
               give_token);
  }
  if (answer.status == 401 || answer.status == 403) {
    user_error("{}: {}: model {} is gated: ask for access at {}; {}", what, answer.status,
               request_.model, page,
               request_.token.empty() ? "then " + give_token
                                      : "then use a token of the account that has it");
  }
  if (answer.status == 404)
    user_error("{}: 404: there is no model {} with revision '{}' at {}", what, request_.model,
               printable(request_.revision), page);
  const std::string message = printable(answer.header("x-error-message"));
  hub_failed("{}: the hub answers {}{}", what, answer.status,
             message.empty() ? "" : ": " + message);
}

HubSession::Listing HubSession::list() {
  const std::string what = "cannot list " + request_.model;
  std::string url = fmt::format("{}/api/models/{}/revision/{}", endpoint_, request_.model,
                                url_quoted(request_.revision, false));
  HttpAnswer answer;
  for (int turns = 0; turns <= kMostRedirects; ++turns) {
    answer = persist(
        what, [&] { return client_.get(url, headers_for(url)); }, [] { return int64_t{0}; });
    if (!answer.trouble.empty() || !is_redirect(answer.status)) break;
    url = resolve_url(url, answer.header("location"));  // a model that was renamed
    if (url_origin(url) != origin_) hub_failed("{}: the hub points to another host", what);
  }
  if (answer.status != 200 || !answer.trouble.empty()) refuse(answer, what, "");

  const json listing = try_json(answer.body);
  const auto commit = listing.find("sha"), siblings = listing.find("siblings");
  if (!listing.is_object() || commit == listing.end() || !commit->is_string() ||
      siblings == listing.end() || !siblings->is_array()) {
    hub_failed("{}: the hub's answer is not a list of files; is {} a hub?", what, endpoint_);
  }
  Listing result{.commit = commit->get<std::string>(), .files = {}};
  if (!is_checksum(result.commit))
    hub_failed("{}: the hub's commit '{}' is none", what, printable(result.commit));
  std::set<std::string> seen;
  for (const json& sibling : *siblings) {
    const auto name = sibling.find("rfilename");
    if (!sibling.is_object() || name == sibling.end() || !name->is_string())
      hub_failed("{}: the hub lists a file without a name", what);
    const auto file = name->get<std::string>();
    if (!is_safe_path(file))
      hub_failed("{}: the hub lists '{}', a name that leads out of the model's folder", what,
                 printable(file));
    if (seen.insert(file).second) result.files.push_back(file);
  }
  return result;
}

HubSession::FileFacts HubSession::facts(const std::string& commit, const std::string& file) {
  const std::string what = fmt::format("cannot ask for {} of {}", printable(file), request_.model);
  std::string url = file_url(commit, file);
  HttpAnswer answer;
  for (int turns = 0; turns <= kMostRedirects; ++turns) {
    answer = persist(
        what, [&] { return client_.head(url, headers_for(url)); }, [] { return int64_t{0}; });
    if (!answer.trouble.empty() || !is_redirect(answer.status)) break;
    // A large file's facts come with the redirect to the host that has it. Small files and renamed
    // models are pointed to inside the hub.
    if (!answer.header("x-linked-etag").empty()) break;
    url = resolve_url(url, answer.header("location"));
    if (url_origin(url) != origin_)
      hub_failed("{}: the hub points to another host and gives no checksum", what);
  }
  const bool linked = is_redirect(answer.status) && !answer.header("x-linked-etag").empty();
  if (!answer.trouble.empty() || (answer.status != 200 && !linked)) refuse(answer, what, file);

  const std::string etag = answer.header("x-linked-etag"), size = answer.header("x-linked-size");
  FileFacts result{.checksum = bare_etag(etag.empty() ? answer.header("etag") : etag), .bytes = 0};
  if (!is_checksum(result.checksum))
    hub_failed("{}: the hub gives no checksum ('{}')", what, printable(result.checksum, 80));
  const auto bytes = natural(size.empty() && !linked ? answer.header("content-length") : size);
  if (!bytes) hub_failed("{}: the hub does not say how long it is", what);
  result.bytes = *bytes;
  return result;
}

void HubSession::download(const std::string& commit, const std::string& file,
                          const std::function<int64_t()>& held,
                          const std::function<void(int64_t)>& begin,
                          const std::function<void(std::string_view)>& take) {
  const std::string what = fmt::format("cannot download {} of {}", printable(file), request_.model);
  // Every attempt begins at the hub, for the addresses that it points to expire.
  const auto ask = [&] {
    std::string url = file_url(commit, file);
    const int64_t first = held();
    const auto check_begin = [&](const HttpAnswer& answer) {
      const bool continued = answer.status == 206;
      if (continued &&
          !answer.header("content-range").starts_with(fmt::format("bytes {}-", first))) {
        hub_failed("{}: the server sends another part than requested", what);
      }
      begin(continued ? first : 0);
    };
    HttpAnswer answer;
    for (int turns = 0; turns <= kMostRedirects; ++turns) {
      HttpClient::Headers headers = headers_for(url);
      if (first > 0) headers.push_back(fmt::format("Range: bytes={}-", first));
      answer = client_.download(url, headers, check_begin, take);
      if (!answer.trouble.empty() || !is_redirect(answer.status)) break;
      const std::string next = resolve_url(url, answer.header("location"));
      if (next.empty()) hub_failed("{}: the hub points nowhere", what);
      if (url.starts_with("https:") && !next.starts_with("https:"))
        hub_failed("{}: the hub points from https to http", what);
      url = next;
    }
    // what is held is longer than the file: from the start
    if (answer.status == 416 && first > 0) begin(0);
    return answer;
  };
  HttpAnswer answer = persist(what, ask, held);
  if (answer.status == 416 && answer.trouble.empty()) answer = persist(what, ask, held);
  const bool came = answer.trouble.empty() && (answer.status == 200 || answer.status == 206);
  if (!came) refuse(answer, what, file);
}

}  // namespace veil
