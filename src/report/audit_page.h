// The page and the summary of audit records: audit_*.json of a folder.
#pragma once

#include <string>
#include <vector>

#include "record/audit_record.h"

namespace veil {

// "audit_mechanism.json": where a record of this kind is kept in its folder.
std::string audit_file_name(const std::string& kind);

// Whether a folder has audit records and no others.
bool holds_audits(const std::string& folder);
// By name. UserError for a damaged one.
std::vector<AuditRecord> read_audits(const std::string& folder);

std::string audit_summary(const std::vector<AuditRecord>& records);  // for a terminal
std::string audit_page(const std::vector<AuditRecord>& records);     // one self-contained page
// Writes index.html into `output_folder` ("": the folder itself) and answers its path. UserError
// if a file is in the way that Veil did not write.
std::string write_audit_page(const std::string& folder, const std::string& output_folder,
                             bool overwrite);

}  // namespace veil
