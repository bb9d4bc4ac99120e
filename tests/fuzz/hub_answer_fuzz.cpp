// A hub's answers, one for each request in turn, separated by lines of "---": a line with the
// status, headers as "name: value", an empty line, the body.
#include <deque>

#include "data/hub.h"
#include "data/hub_session.h"
#include "fuzz/fuzz.h"

namespace veil {
namespace {

std::deque<HttpAnswer> answers;  // yet to be given

HttpAnswer parse_answer(std::string_view text) {
  HttpAnswer answer;
  answer.status = std::atoi(std::string(fuzz::take_line(text)).c_str());
  while (!text.empty()) {
    const std::string_view line = fuzz::take_line(text);
    if (line.empty()) break;
    const size_t colon = line.find(": ");
    if (colon != std::string_view::npos)
      answer.headers[std::string(line.substr(0, colon))] = line.substr(colon + 2);
  }
  answer.body = text;
  return answer;
}

HttpAnswer next_answer() {
  if (answers.empty()) return {.status = 404, .headers = {}, .body = "", .trouble = ""};
  HttpAnswer answer = std::move(answers.front());
  answers.pop_front();
  return answer;
}

}  // namespace

// The client, without a network. It takes the place of the library's own (CMakeLists.txt).
struct HttpClient::State {};
HttpClient::HttpClient(int, const std::string&) {}
HttpClient::~HttpClient() = default;
HttpAnswer HttpClient::head(const std::string&, const Headers&) {
  return next_answer();
}
HttpAnswer HttpClient::get(const std::string&, const Headers&) {
  return next_answer();
}
HttpAnswer HttpClient::download(const std::string&, const Headers&,
                                const std::function<void(const HttpAnswer&)>& begin,
                                const std::function<void(std::string_view)>& take) {
  HttpAnswer answer = next_answer();
  if (answer.status == 200 || answer.status == 206) {
    begin(answer);
    take(answer.body);
  }
  return answer;
}

}  // namespace veil

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  std::string_view text = fuzz::text_of(data, size);
  answers.clear();
  while (!text.empty()) {
    const size_t end = std::min(text.find("\n---\n"), text.size());
    answers.push_back(parse_answer(text.substr(0, end)));
    text.remove_prefix(std::min(text.size(), end + 5));
  }
  fuzz::allow_user_error([&] {
    FetchRequest request;
    request.model = "org/model";
    request.endpoint = "https://hub.example";
    request.attempts = 1;
    HubSession session(request, [](const std::string&) {});
    const HubSession::Listing listing = session.list();
    files_of_a_model(listing.files);
    for (const std::string& file : listing.files) {
      fuzz::require(is_safe_path(file), "listed files stay in the model's folder");
      fuzz::require(session.facts(listing.commit, file).bytes >= 0, "sizes are not negative");
      int64_t held = 0;
      session.download(
          listing.commit, file, [&] { return held; }, [&](int64_t first) { held = first; },
          [&](std::string_view bytes) { held += std::ssize(bytes); });
    }
  });
  return 0;
}
