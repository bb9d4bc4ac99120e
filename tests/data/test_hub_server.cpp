#include "data/test_hub_server.h"

#include <nlohmann/json.hpp>

#include "data/http.h"

namespace veil {

TestHubServer::TestHubServer()
    : hub_([this](const TestRequest& request) { return answer_hub(request); }),
      store_([this](const TestRequest& request) { return answer_store(request); }) {}

void TestHubServer::add(const std::string& name, const std::string& content, bool large) {
  Digest digest(large ? DigestKind::sha256 : DigestKind::git_blob,
                static_cast<int64_t>(content.size()));
  digest.add(content);
  files_[name] = {content, digest.hex(), large};
  if (large) names_in_store_[files_[name].checksum] = name;
}

std::string TestHubServer::checksum(const std::string& name) const {
  return files_.at(name).checksum;
}

int TestHubServer::downloads(const std::string& name) const {
  int count = 0;
  const File& file = files_.at(name);
  for (const auto& request : hub_.requests())
    count += request.method == "GET" && !file.large && request.path.ends_with("/" + name);
  for (const auto& request : store_.requests())
    count += file.large && request.path == "/blob/" + file.checksum + "?signature=1";
  return count;
}

TestAnswer TestHubServer::answer_hub(const TestRequest& request) {
  if (!busy.empty()) {
    const int status = busy.front();
    busy.pop_front();
    return {.status = status, .headers = {{"Retry-After", "0"}}};
  }
  const auto authorization = request.headers.find("authorization");
  if (!token.empty() &&
      (authorization == request.headers.end() || authorization->second != "Bearer " + token)) {
    return {.status = 401, .headers = {{"X-Error-Code", "RepoNotFound"}}, .body = "{}"};
  }
  const std::string listing = "/api/models/" + model + "/revision/";
  const std::string resolved = "/" + model + "/resolve/" + commit + "/";
  if (request.path.starts_with(listing)) {
    if (const auto other = hostile.find("listing"); other != hostile.end()) return other->second;
    const std::string revision = request.path.substr(listing.size());
    if (revision != "main" && revision != commit && revision != "refs%2Fpr%2F1") {
      return {.status = 404, .headers = {{"X-Error-Code", "RevisionNotFound"}}};
    }
    nlohmann::json answer = {{"sha", commit}, {"siblings", nlohmann::json::array()}};
    for (const auto& [name, file] : files_) answer["siblings"].push_back({{"rfilename", name}});
    for (const auto& name : listed_besides) answer["siblings"].push_back({{"rfilename", name}});
    return {.body = answer.dump()};
  }
  if (!request.path.starts_with(resolved))
    return {.status = 404, .headers = {{"X-Error-Code", "RepoNotFound"}}};
  if (gated)
    return {.status = authorization == request.headers.end() ? 401 : 403,
            .headers = {{"X-Error-Code", "GatedRepo"}}};
  const std::string name = request.path.substr(resolved.size());
  if (const auto other = hostile.find(name); other != hostile.end()) return other->second;
  const auto found = files_.find(name);
  if (found == files_.end()) return {.status = 404, .headers = {{"X-Error-Code", "EntryNotFound"}}};
  const File& file = found->second;
  TestAnswer answer;
  if (file.large) {
    answer.status = 302;
    answer.headers = {{"Location", store_.address() + "/blob/" + file.checksum + "?signature=1"},
                      {"ETag", "\"of the redirect\""},
                      {"X-Linked-ETag", "\"" + file.checksum + "\""},
                      {"X-Linked-Size", std::to_string(file.content.size())}};
    answer.body = "Found. Redirecting";
  } else {
    answer = bytes(name, request);
    answer.headers["ETag"] = "W/\"" + file.checksum + "\"";
  }
  if (const auto other = headers_besides.find(name); other != headers_besides.end()) {
    const size_t colon = other->second.find(": ");
    answer.headers[other->second.substr(0, colon)] = other->second.substr(colon + 2);
  }
  return answer;
}

TestAnswer TestHubServer::answer_store(const TestRequest& request) {
  const std::string blobs = "/blob/";
  const std::string key = request.path.substr(std::min(blobs.size(), request.path.size()), 64);
  const auto found = names_in_store_.find(key);
  if (found == names_in_store_.end()) return {.status = 404};
  if (const auto other = hostile.find("bytes of " + found->second); other != hostile.end())
    return other->second;
  return bytes(found->second, request);
}

TestAnswer TestHubServer::bytes(const std::string& name, const TestRequest& request) {
  TestAnswer answer;
  answer.body = instead.contains(name) ? instead[name] : files_.at(name).content;
  const auto range = request.headers.find("range");
  if (ranges && range != request.headers.end()) {
    const size_t first = std::stoull(range->second.substr(std::string("bytes=").size()));
    if (first >= answer.body.size()) return {.status = 416};
    answer.headers["Content-Range"] = "bytes " + std::to_string(first) + "-" +
                                      std::to_string(answer.body.size() - 1) + "/" +
                                      std::to_string(answer.body.size());
    answer.status = 206;
    answer.body = answer.body.substr(first);
  }
  if (auto& cut = cuts[name]; request.method == "GET" && !cut.empty()) {
    answer.cut_after = cut.front();
    cut.pop_front();
  }
  return answer;
}

}  // namespace veil
