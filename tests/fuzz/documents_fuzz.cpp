// A data file. The first line is the ending of its name ("jsonl", "json", "csv", "tsv", "txt"), and
// any of the words "label", "user" and "strict" after it.
#include "base/utf8.h"
#include "data/corpus.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  std::string_view content = fuzz::text_of(data, size);
  const std::string_view head = fuzz::take_line(content);
  const auto has = [&](const char* word) { return head.find(word) != std::string_view::npos; };
  data::CorpusOptions options;
  options.label_key = has("label") ? "label" : "";
  options.label_names = {"no", "yes"};
  options.user_key = has("user") ? "user" : "";
  options.skip_bad = !has("strict");
  const char* ending = "txt";
  for (const char* known : {"csv", "tsv", "json", "jsonl"})
    if (head.starts_with(known)) ending = known;
  const std::string path = fuzz::input_file(std::string("input.") + ending, content);
  fuzz::allow_user_error([&] {
    const data::RecognisedChat chat{.chat = data::named_chat_template(data::ChatFormat::chatml, {}),
                                    .refusal = ""};
    data::Corpus corpus(path, options, chat);
    while (const auto document = corpus.next()) {
      fuzz::require(!document->text.empty(), "documents have text");
      fuzz::require(find_invalid_utf8(document->text) == std::string::npos, "text is UTF-8");
      for (const auto& reply : document->replies)
        fuzz::require(reply.begin <= reply.end && reply.end <= document->text.size(),
                      "replies are in the text");
    }
  });
  return 0;
}
