// Which of ZeRO's stages to take, and why, from the figures of `veil suite zero`.
#pragma once

#include "report/verdict.h"
#include "report/zero_tables.h"

namespace veil {

// From these on a figure brings advice. Utilisation and data are seed 002's; it gives none for communication.
constexpr double kLowUtilisationPercent = 70;
constexpr double kHighDataShare = 0.10;
constexpr double kHighCommunicationShare = 0.20;

Verdict judge_zero(const RecordFolder& folder, std::vector<std::string> caveats);

}  // namespace veil
