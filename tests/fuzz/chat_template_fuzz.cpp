// A model's chat template in Jinja.
#include "data/chat.h"
#include "fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace veil;
  fuzz::allow_user_error([&] {
    const data::ChatTokens tokens{.begin = "<s>", .end = "</s>"};
    const data::RecognisedChat found =
        data::recognise_chat_template(std::string(fuzz::text_of(data, size)), tokens);
    fuzz::require(found.chat.has_value() == found.refusal.empty(), "a template or a refusal");
    if (!found.chat) return;
    const data::RenderedChat rendered =
        data::render_chat(*found.chat, {{"system", "s"}, {"user", "u"}, {"assistant", "a"}}, true);
    for (const auto& reply : rendered.replies)
      fuzz::require(reply.end <= rendered.text.size(), "replies are in the text");
  });
  return 0;
}
