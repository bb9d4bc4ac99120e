#include "report/audit_page.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/outputs.h"
#include "base/table.h"
#include "base/units.h"
#include "record/fields.h"
#include "record/verify_record.h"
#include "report/html.h"

namespace veil {
namespace {

namespace fs = std::filesystem;

std::string audit_number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "not finite";
}

std::vector<std::string> audit_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("audit_") && name.ends_with(".json"))
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string bound_text(const AuditRecord& record) {
  return fmt::format(
      "epsilon is at least {} at {:.8g} % confidence; the run claims {} (delta {:g})",
      std::isfinite(record.epsilon_low) ? format_lower_epsilon(record.epsilon_low) : "infinite",
      100 * record.confidence, format_epsilon(record.claim.epsilon), record.claim.delta);
}

Table claim_table(const AuditRecord& record) {
  const AuditClaim& c = record.claim;
  Table table({"claim", "value"});
  table.row({"epsilon, delta", fmt::format("{}, {:g}", format_epsilon(c.epsilon), c.delta)});
  if (c.sigma == 0) return table;  // a run with canaries: its own folder has the rest
  table.row({"sigma, C, slack", fmt::format("{:g}, {:g}, {:.3g}", c.sigma, c.clip_norm, c.slack)});
  if (!c.unit.empty()) table.row({"unit of privacy", c.unit});
  table.row({"sampler, q, E, steps",
             fmt::format("{}, {:.6g}, {:g}, {}", c.sampler, c.q, c.expected_batch, c.steps)});
  table.row({"trained parameters, ranks", fmt::format("{}, {}", c.parameters, c.world)});
  table.row({"accountant, optimizer, storage",
             fmt::format("{}, {}, {}", c.accountant, c.optimizer, c.storage)});
  return table;
}

Table law_table(const AuditRecord& record) {
  Table table({"law", "tests", "worst", "allowed", "where", "verdict"});
  for (const AuditLaw& law : record.laws)
    table.row({law.name, std::to_string(law.tests), audit_number(law.value),
               audit_number(law.lower) + " to " + audit_number(law.upper), law.where, law.verdict});
  if (const auto& n = record.noise)
    table.row({"deviation of the noise", std::to_string(n->values), audit_number(n->measured),
               fmt::format("plan {}", audit_number(n->planned)),
               audit_number(n->low) + " to " + audit_number(n->high),
               n->low <= n->planned && n->planned <= n->high ? kPass : kFail});
  if (const auto& s = record.sampling)
    table.row({"sampling rate", std::to_string(s->trials),
               audit_number(static_cast<double>(s->inclusions) / static_cast<double>(s->trials)),
               fmt::format("plan {}", audit_number(s->planned)),
               audit_number(s->low) + " to " + audit_number(s->high),
               s->low <= s->planned && s->planned <= s->high ? kPass : kFail});
  return table;
}

Table canary_table(const AuditRecord& record) {
  Table table({"canary", "moves the sum by (C)", "allowed", "verdict"});
  for (const AuditCanary& canary : record.canaries)
    table.row({canary.name, audit_number(canary.distance), audit_number(canary.allowed),
               canary.distance <= canary.allowed ? kPass : kFail});
  return table;
}

Table test_table(const AuditRecord& record) {
  Table table({"test", "value"});
  if (const auto& t = record.test) {
    table.row({"pairs", std::to_string(t->pairs)});
    table.row({"false positives, upper bound of their rate",
               fmt::format("{}, {:.5f}", t->false_positives, t->false_positive_high)});
    table.row({"false negatives, upper bound of their rate",
               fmt::format("{}, {:.5f}", t->false_negatives, t->false_negative_high)});
    table.row({"conversion", t->conversion});
  }
  if (const auto& r = record.one_run) {
    table.row(
        {"canaries, included by their coins", fmt::format("{}, {}", r->canaries, r->included)});
    table.row({"guesses, right ones", fmt::format("{}, {}", r->guesses, r->correct)});
  }
  return table;
}

// The measured ROC with the one that the claim allows at most.
std::string roc_figure(const AuditRecord& record) {
  constexpr int kSide = 360, kEdge = 46;
  const auto line = [&](const std::vector<AuditPoint>& points, const char* style) {
    std::string path;
    for (const AuditPoint& point : points)
      path += fmt::format("{:.1f},{:.1f} ", kEdge + kSide * point.false_positive,
                          10 + kSide * (1 - point.true_positive));
    return fmt::format("<polyline points=\"{}\" fill=\"none\" {}/>", path, style);
  };
  std::string svg = fmt::format(
      "<figure><svg viewBox=\"0 0 {} {}\" role=\"img\" style=\"max-width:32rem\" "
      "aria-label=\"ROC of the audit\" font-size=\"12\" fill=\"currentColor\">",
      kSide + kEdge + 20, kSide + kEdge + 20);
  svg += fmt::format(
      "<rect x=\"{}\" y=\"10\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#767676\"/>",
      kEdge, kSide, kSide);
  svg += line({{0, 0}, {1, 1}}, "stroke=\"#767676\" stroke-dasharray=\"2 4\"");
  svg += line(record.claimed_roc, "stroke=\"#c2410c\" stroke-width=\"2\" stroke-dasharray=\"7 4\"");
  svg += line(record.roc, "stroke=\"#2563eb\" stroke-width=\"2\"");
  if (const auto& t = record.test) {
    const auto n = static_cast<double>(t->pairs);
    svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#2563eb\"/>",
                       kEdge + kSide * static_cast<double>(t->false_positives) / n,
                       10 + kSide * static_cast<double>(t->false_negatives) / n);
  }
  for (const double tick : {0.0, 0.5, 1.0}) {
    svg += fmt::format("<text x=\"{:.0f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>",
                       kEdge + kSide * tick, kSide + 26, tick);
    svg += fmt::format("<text x=\"{}\" y=\"{:.0f}\" text-anchor=\"end\">{:g}</text>", kEdge - 6,
                       14 + kSide * (1 - tick), tick);
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">false positive rate</text>",
                     kEdge + kSide / 2, kSide + 44);
  svg += fmt::format(
      "<text x=\"14\" y=\"{}\" text-anchor=\"middle\" transform=\"rotate(-90 14 {})\">true "
      "positive "
      "rate</text>",
      kSide / 2, kSide / 2);
  return svg +
         "</svg><figcaption>Blue: the attack that was run, with its threshold. Dashed: the "
         "largest that the claim allows; a curve above it breaks the claim."
         "</figcaption></figure>";
}

}  // namespace

std::string audit_file_name(const std::string& kind) {
  std::string name = "audit_" + kind + ".json";
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool holds_audits(const std::string& folder) {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (entry.path().filename().string().ends_with("_result.json")) return false;
  }
  return !audit_files(folder).empty();
}

std::vector<AuditRecord> read_audits(const std::string& folder) {
  std::vector<AuditRecord> records;
  for (const std::string& file : audit_files(folder)) {
    try {
      records.push_back(audit_record_from_json(parse_object(read_file(file))));
    } catch (const DamagedRecordError& error) {
      user_error("'{}' is no audit record: {}; remove it or run the audit again", file,
                 error.what());
    }
  }
  return records;
}

std::string audit_summary(const std::vector<AuditRecord>& records) {
  std::string text;
  for (const AuditRecord& record : records) {
    text += fmt::format("audit {}, not private\n{}", record.kind, claim_table(record).text());
    if (!record.laws.empty() || record.noise || record.sampling)
      text += fmt::format("\n{}", law_table(record).text());
    if (!record.canaries.empty()) text += fmt::format("\n{}", canary_table(record).text());
    if (record.test || record.one_run) text += fmt::format("\n{}", test_table(record).text());
    text += "\n";
    for (const std::string& failure : record.failures) text += "FAIL      " + failure + "\n";
    text += fmt::format("bound     {}\nverdict   {}\n", bound_text(record), record.verdict);
  }
  return text;
}

std::string audit_page(const std::vector<AuditRecord>& records) {
  std::string page = fmt::format(
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>Veil audit</title><style>{}</style>"
      "</head><body><main><h1>Audit of a private run</h1><p><strong>Not private:</strong> these "
      "figures were measured on the data. Do not publish them with the model.</p>",
      kPageStyle);
  for (const AuditRecord& record : records) {
    page += fmt::format("<h2>audit {}: {}</h2><p>{}</p>", escaped(record.kind),
                        escaped(record.verdict), escaped(bound_text(record)));
    for (const std::string& failure : record.failures)
      page += fmt::format("<p><strong>FAIL</strong> {}</p>", escaped(failure));
    if (!record.roc.empty()) page += roc_figure(record);
    if (record.test || record.one_run) page += html_table(test_table(record), "the test");
    if (!record.canaries.empty()) page += html_table(canary_table(record), "sensitivity");
    if (!record.laws.empty() || record.noise || record.sampling)
      page += html_table(law_table(record), "laws of noise and sampling");
    page += html_table(claim_table(record), "what the run claims");
    if (!record.command.empty()) page += fmt::format("<pre>{}</pre>", escaped(record.command));
  }
  return page + "</main></body></html>\n";
}

std::string write_audit_page(const std::string& folder, const std::string& output_folder,
                             bool overwrite) {
  const std::string target = output_folder.empty() ? folder : output_folder,
                    file = join_path(target, "index.html");
  const std::string page = audit_page(read_audits(folder));
  check_output_file(file, overwrite);
  ensure_folder_writable(target);
  write_listed_file(file, page, overwrite);
  return file;
}

}  // namespace veil
