#!/usr/bin/env python3
"""Applies each classical mistake of private training to a copy of the source, one at a time, and shows that a test catches it.

mutants.py [--jobs N] [--only NAME ...] [--list] [--folder DIR]

Where a mutant names options of `veil verify` or of `veil audit mechanism`, that must fail too and name the cause.
The copy and its build lie in build-mutants/ (ccache keeps what does not change). Unchanged, every named test must pass; with a mistake at least one of the
mutant's own must fail. Exit 1 where a mutant survives, 2 where an anchor is gone from the source: then this list wants mending.
"""
import argparse
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Mutant:
    name: str
    mistake: str
    edits: list  # (file, text as it stands, text with the mistake)
    tests: str = ''  # a filter of veil_tests
    ranks: dict = field(default_factory=dict)  # world: a filter of veil_rank_tests
    verify: tuple = ()  # options of `veil verify`, and what it must then say of the cause
    audit: tuple = ()  # options of `veil train` behind `veil audit mechanism --`, and what it must say


# A small run whose C and E are not 1. Behind them what a mutant needs in addition.
AUDITED = ('--model llama-tiny --from-scratch --data examples/text --seq-length 12 --samples packed --device cpu --sigma 0.8 --delta 1e-5 '
           '--clip-norm 0.5 --total-batch-size 12 --batch-size 4 --steps 20')
AUDITED_RANKS = AUDITED + ' --ranks 2'
AUDITED_FIXED = AUDITED.replace('--batch-size 4', '--batch-size 12') + ' --sampler shuffled --mode materialize'

MUTANTS = [
    Mutant('done-steps-uncounted', 'the noise of a run that continues forgets what it has spent',
           [('src/privacy/mechanism.cpp', '  before.insert(before.end(), r.done.phases.begin(), r.done.phases.end());\n', '')],
           tests='Mechanism.TheNoiseOfARunThatContinues*'),
    Mutant('configuration-outside-the-nonce', "noise is used again after the model's config.json was edited",
           [('src/run/private_run.cpp', '  settings["the digest of the model\'s configuration"] = model_digest_;\n', '')],
           tests='ProgramReplay.AConfigurationThatWasEdited*:ProgramReplay.AnAdaptersScale*'),
    Mutant('model-under-adapters-forgotten', "a model's trainings do not count under adapters that name another base",
           [('src/privacy/statement.cpp', '  Statement both = adapter;\n', '  if (adapter.json.contains("base")) return adapter;\n  Statement both = adapter;\n')],
           tests='PrivacyStatement.AModelCountsUnderAdapters*'),
    Mutant('ledger-before-checkpoint', "a ledger that tells of more noise than its checkpoint is believed",
           [('src/privacy/ledger.cpp', 'if (!alike_but_for_steps(*same, event))', 'if (false)')],
           tests='PrivacyLedger.OneSegmentHasOneMechanism'),
    Mutant('first-record-decides', 'the first record decides which others a private run leaves out',
           [('src/run/text_data.cpp', 'if (config.privacy.is_private() && config.data.corpus.skip_bad &&', 'if (false && config.data.corpus.skip_bad &&')],
           tests='ProgramMistakes.InPrivacy'),
    Mutant('endless-gradients', 'a gradient that is too long for fp32 sums has a coefficient',
           [('src/kernels/clip_coefficient.h', '  return squared_norm <= kLargest && squared_norm >= -kLargest;',
             '  return squared_norm - squared_norm == 0 || squared_norm == kLargest;')],
           tests='Clip.WhatIsNotFinite*'),
    Mutant('deferred-first-block', "the first block's booked sums are made beside the next step's samples",
           [('src/step/build.cpp', '    return other == 0 || other == blocks() ||', '    return other == blocks() ||')],
           tests='DeferredUpdate.ChangesNoBit'),
    Mutant('kept-of-earlier-steps', "a step's last sum has the samples in it that an earlier one kept in the places left over",
           [('src/engine/clip_state.cpp', '  if (layout_.together > 0 && (place == 0 || schedule_.exchanges())) kept_coefficients_.zero_();', '')],
           tests='CombineEvery.*'),
    Mutant('coefficients-of-other-samples', 'of several micro-batches that are summed at once the last one is clipped, the others are left out or as before',
           [('src/engine/clip_state.cpp', 'narrow(1, place * layout_.samples, layout_.samples).copy_', 'narrow(1, 0, layout_.samples).copy_')],
           tests='CombineEvery.*'),
    Mutant('received-unclipped', 'gradients that ranks send each other are summed as they are',
           [('src/engine/gradients.cpp', 'of.coefficients = clip_->coefficients_of_kept().of(slot.param, 0, of.grad.size(0));',
             'of.coefficients = clip_->coefficients_of_kept().of(slot.param, 0, of.grad.size(0)).sign();')],
           ranks={2: 'PrivateRanks.FiveNoisySteps*'},
           verify=('--model llama-tiny --mode materialize --strategy zero3 --ranks 2', 'sums otherwise than its clipped gradients')),
    Mutant('coefficients-of-the-first-rank', "of what is not exchanged every rank's samples are clipped as the first rank's",
           [('src/engine/gradients.cpp', 'schedule.exchanges() ? clip_->coefficients_of() : clip_->coefficients_of_kept();',
             'clip_->coefficients_of_kept();')],
           ranks={2: 'PrivateRanks.FrozenParametersKeep*'},
           verify=('--model dit-tiny --mode materialize --strategy zero3 --ranks 2', 'its sum with the coefficients')),
    Mutant('rows-of-another-rank', "the rows that a rank receives lie in another rank's place, beside its coefficients",
           [('src/comm/host_lane.cpp', 'static_cast<size_t>(rank * count_ + row_) * columns_ + offset_;',
             'static_cast<size_t>((lane_.size_ - 1 - rank) * count_ + row_) * columns_ + offset_;')],
           ranks={2: 'PrivateRanks.NormsAreTheRanksOwn*'},
           verify=('--model llama-tiny --mode materialize --strategy zero3 --ranks 2', 'its sum with the coefficients')),
    Mutant('received-sums-unclipped', 'of several micro-batches gradients that ranks send each other are summed as they are',
           [('src/engine/gradients.cpp', 'clip_->coefficients_of_kept().of(slot.param, 0, rows.size(0)),',
             'clip_->coefficients_of_kept().of(slot.param, 0, rows.size(0)).sign(),')],
           ranks={2: 'PrivateRanks.ARunDraws*'}),
    Mutant('coefficients-kept-home', "a rank clips what it received by its own samples' coefficients alone",
           [('src/engine/lanes.cpp', '    return {ranks.reduce->all_gather(clip_->coefficients_of_place(ranks.rank()),',
             '    return {}; return {ranks.reduce->all_gather(clip_->coefficients_of_place(ranks.rank()),')],
           ranks={2: 'PrivateRanks.FiveNoisySteps*'}),
    Mutant('table-sent-early', "a tied table's gradients are sent when the head has reported, and the embedding has not",
           [('src/step/build_body.cpp', '    if (--adding_left_[u] > 0 || !schedule_.exchanges(u)) continue;',
             '    if ((--adding_left_[u], reduced_by_[u] >= 0) || !schedule_.exchanges(u)) continue;')],
           ranks={2: 'PrivateRanks.FiveNoisySteps*'}),
    Mutant('columns-of-a-peer', "a simulated peer sends its own columns, which are other parameters' or none, instead of those that the rank owns",
           [('src/comm/communicator_simulated.cpp', '% count * size_ + rank_) * n, n,', '% count * size_ + p) * n, n,')],
           tests='Simulated.APeersRows*'),
    Mutant('older-calibration', 'prices are used that were measured when rows of a schedule were counted otherwise',
           [('src/estimate/machine_prices.cpp', '    if (found.value("amounts", 1) != kAmountsVersion) return {};\n', '')],
           tests='MachinePricesTest.PricesOfRows*'),
    Mutant('sums-before-coefficients', "received gradients are summed while other ranks' coefficients are on their way",
           [('src/step/build_body.cpp', '          .after = {reduced_by_[u], coefficients_by_},', '          .after = {reduced_by_[u]},')],
           tests='Schedule.SumsOfReceived*'),
    Mutant('keys-of-other-samples', "a sample's attention reads the keys and values of the sample before it",
           [('src/kernels/tiled_attention.cpp', 'return head(qkv, joint_heads(), sample, index);',
             'return head(qkv, joint_heads(), index >= heads && sample > 0 ? sample - 1 : sample, index);')],
           tests='TiledAttention.*'),
    Mutant('rows-of-the-first-sample', "every sample's embedding table gets the rows of the first sample",
           [('src/kernels/embedding_grad.cpp', '      embedding_grad(ids.select(0, i), grad.select(0, i), out.select(0, i).view({-1, width}),',
             '      embedding_grad(ids.select(0, 0), grad.select(0, 0), out.select(0, i).view({-1, width}),')],
           tests='Operations.*:PrivateStep.EveryPlan*'),
    Mutant('bias-of-the-activations', "a diffusion block's bias gets the sum of its outputs for that of their gradients",
           [('src/kernels/activation.cpp', '    return token_sum(dx.view(x.sizes()), sums);', '    return token_sum(x, sums);')],
           tests='Operations.*'),
    Mutant('norms-before-rounding', 'biases are clipped by the norms that they had before they were rounded to be kept',
           [('src/kernels/sample_norm.cpp', '    return add_segment_norms(to, segments, squared);', '    return add_segment_norms(from, segments, squared);')],
           tests='SampleOperations.AgreeWithPlainSums:KeepSink.*'),
    Mutant('noise-of-the-first-range', 'ranges that are updated together get the noise of the first of them',
           [('src/kernels/noisy_update.cpp', '      run_on_cpu(of, knobs, rule, noise_knobs, source);',
             '      NoisyUpdate like = of;\n      like.parameter = ranges.front().parameter;\n      run_on_cpu(like, knobs, rule, noise_knobs, source);')],
           tests='SampleOperations.UpdatesTogether*'),
    Mutant('norms-over-ranks', 'squared norms are reduced over the data ranks',
           [('src/engine/gradients.cpp', '    clip_->coefficients(op.layer, coefficient_place());',
             '    if (context_.ranks.reduce) context_.ranks.reduce->all_reduce(clip_->squared_norms())->wait();\n    clip_->coefficients(op.layer, coefficient_place());')],
           ranks={2: 'PrivateRanks.NormsAreTheRanksOwn*'},
           verify=('--model llama-tiny --mode ghost --strategy zero3 --ranks 2', 'likely cause: reduction'),
           audit=(AUDITED_RANKS + ' --mode ghost', 'sensitivity: the canary')),
    Mutant('bias-squares-first', "a bias's norm squares before it sums over the tokens",
           [('src/nn/projection.cpp', '#include "kernels/token_sum.h"', '#include "kernels/token_sum.h"\n#include "privacy/norm_sink.h"'),
            ('src/nn/projection.cpp', '  token_sum(g, per_sample);',
             '  if (dynamic_cast<privacy::NormSink*>(&sink))\n    per_sample.copy_(g.square().sum(1).sqrt());\n  else\n    token_sum(g, per_sample);')],
           tests='PrivateStep.NormsAreTheSamplesOwn',
           verify=('--model qwen2-tiny --mode flash --strategy ddp', 'likely cause: bias norm'),
           audit=(AUDITED.replace('llama-tiny', 'qwen2-tiny') + ' --mode flash', 'sensitivity: the canary')),
    Mutant('bias-gradient-squares-first', "a bias's very gradient squares before it sums over the tokens: one sample at a time does it too, so goldens must see it",
           [('src/kernels/token_sum.cpp', 'return static_cast<real>(data[sample * batch_stride + t * token_stride + j]);',
             'const real value = static_cast<real>(data[sample * batch_stride + t * token_stride + j]);\n      return value * value;'),
            ('src/kernels/token_sum.cpp', '    });\n  });\n}', '    });\n    out.sqrt_();\n  });\n}')],
           tests='PrivateGolden.*:ClippingGolden.*'),
    Mutant('no-tied-cross-term', 'a tied table and its head are normed apart',
           [('src/privacy/norm_sink.cpp', '      2, sums);\n  tied_rows_.reset();', '      0, sums);\n  tied_rows_.reset();')],
           tests='NormSink.ATiedTable*:PrivateStep.NormsAreTheSamplesOwn',
           verify=('--model llama-tiny-tied --mode bookkeeping --strategy ddp', 'likely cause: tied weight')),
    Mutant('noise-per-micro-batch', 'noise is drawn for every micro-batch',
           [('src/engine/executor.cpp', 'namespace veil {\n', 'namespace veil {\nextern int micro_batches_run;\n'),
            ('src/engine/executor.cpp', '  run(Part::tail, 0);', '  micro_batches_run = rows_->micro_batches();\n  run(Part::tail, 0);'),
            ('src/engine/gradients.cpp', 'namespace veil {\n', 'namespace veil {\nint micro_batches_run = 1;\n'),
            ('src/engine/gradients.cpp', '  noisy_update(ranges, knobs_, rule_, clip_->noise_knobs(), clip_->noise());',
             '  const Tensor& knobs = clip_->noise_knobs();\n'
             '  for (const NoisyUpdate& of : ranges) {\n'
             '    for (int m = 1; m < micro_batches_run && !of.coefficients.defined(); ++m)\n'
             '      add_noise(of.grad, NoiseKnobs{knobs[0].item<double>() + 1000 * m, knobs[1].item<double>()},\n'
             '                clip_->noise(), of.parameter, of.first_element);\n'
             '  }\n'
             '  noisy_update(ranges, knobs_, rule_, clip_->noise_knobs(), clip_->noise());')],
           tests='PrivateStep.NoiseIsTheSame*',
           verify=('--model llama-tiny --mode ghost --strategy ddp', 'other noise than its one draw'),
           audit=(AUDITED, 'deviation of the noise')),
    Mutant('noise-on-frozen', 'frozen parameters are updated, noise and weight decay included',
           [('src/shard/layout.cpp', '  unit.frozen = frozen;', '  unit.frozen = false;')],
           tests='Freeze.*'),
    Mutant('noise-too-small', 'noise is divided by sqrt(W)',
           [('src/engine/clip_state.cpp', '.deviation = deviation};',
             '.deviation = deviation / std::sqrt(static_cast<double>(schedule_.options.world))};')],
           ranks={2: 'PrivateRanks.NoiseHasTheSameBits*'},
           verify=('--model llama-tiny --mode ghost --strategy zero2 --ranks 2', 'noise is off by sqrt(W)'),
           audit=(AUDITED_RANKS, 'epsilon is at least')),
    Mutant('noise-too-large', 'noise is multiplied by sqrt(W)',
           [('src/engine/clip_state.cpp', '.deviation = deviation};',
             '.deviation = deviation * std::sqrt(static_cast<double>(schedule_.options.world))};')],
           ranks={2: 'PrivateRanks.NoiseHasTheSameBits*'},
           audit=(AUDITED_RANKS, 'deviation of the noise')),
    Mutant('equal-noise-on-shards', 'two shards draw the same noise',
           [('src/engine/gradients.cpp', 'of.first_element = begin - slot.offset;', 'of.first_element = place;')],
           ranks={2: 'PrivateRanks.NoiseHasTheSameBits*'},
           verify=('--model linear-stack --mode ghost --strategy zero3 --ranks 2', 'not that of its own elements'),
           audit=(AUDITED_RANKS + ' --strategy zero3', 'correlation at any distance')),
    Mutant('fp64-radius-of-32-bits', 'an fp64 radius has 32 random bits',
           [('src/kernels/noise_values.h', 'const Real radius = noise_radius(noise_uniform<Real>(word, further->word[2 * pair]));',
             'const Real radius = noise_radius(noise_uniform<Real>(word));'),
            ('src/kernels/noise_values.h', 'uint64_t{turn} << 32 | further->word[2 * pair + 1]', 'uint64_t{turn} << 32')],
           tests='NoiseLaw.Fp64Pairs*'),
    Mutant('half-a-plane', 'pairs of noise lie in one half of the plane',
           [('src/kernels/noise_values.h', 'const Real turned = negated_by(radius, nearest);', 'const Real turned = radius;')],
           tests='NoiseLaw.TheTails*'),
    Mutant('one-draw-of-two', 'hardened noise has no second draw',
           [('src/kernels/noise_values.h', '  if (keys.generator != NoiseGenerator::hardened) return sum;', '  return sum;'),
            ('src/kernels/noise_range.cpp', '  if (keys.generator == NoiseGenerator::hardened) {', '  if (false) {')],
           tests='NoiseLaw.AMembershipTest*'),
    Mutant('no-lattice', 'hardened sums keep the last bits of floating point',
           [('src/kernels/noise_values.h', '  return (value + anchor) - anchor;', '  return value;')],
           tests='NoiseLaw.HardenedSums*'),
    Mutant('drawn-batch-size', 'the sum is divided by the drawn batch, not by the expected one',
           [('src/engine/gradients.cpp', 'return clip_ ? clip_->expected_batch() : samples_in_step();', 'return samples_in_step();')],
           tests='PrivateStep.TheUpdateIsTheSumAndTheNoiseOverTheExpectedBatch',
           audit=(AUDITED.replace('--total-batch-size 12', '--total-batch-size 10'), 'deviation of the noise')),
    Mutant('empty-batch-skipped', 'a step whose draw is empty does not happen',
           [('src/engine/executor.cpp', '  if (!graphs_->captured()) rows_->memory().begin();', '  if (rows_->micro_batches() == 0) return;\n  if (!graphs_->captured()) rows_->memory().begin();')],
           tests='PrivateStep.AnEmptyBatchStillAddsNoise',
           audit=(AUDITED, 'does not follow its privacy plan')),
    Mutant('empty-batch-not-counted', 'the trainer leaves a step out whose draw is empty',
           [('src/train/trainer.cpp', '    StepLine line;\n    line.step = step;', '    if (options_.privacy && batch->samples.empty()) continue;\n    StepLine line;\n    line.step = step;')],
           tests='ProgramPrivateTrain.AnEmptyBatchStillStepsAndCounts',
           audit=(AUDITED, 'was not taken')),
    Mutant('padding-counts', 'a sample that pads a micro-batch is counted',
           [('src/kernels/coefficients.cpp', 'of.clip_norms.data_ptr<double>(), counted, coefficients.data_ptr<double>(),\n                        of.last',
             'of.clip_norms.data_ptr<double>(), nullptr, coefficients.data_ptr<double>(),\n                        of.last')],
           tests='PrivateStep.PaddingSamplesAndEmptyBatchesCountForNothing',
           verify=('--model gpt2-tiny --mode ghost --strategy ddp', 'likely cause: padding')),
    Mutant('gram-in-bf16', 'the Gram matrices of bf16 models are bf16',
           [('src/privacy/norm_sink.cpp', '                       /*add=*/k > 0);\n        }\n        return out;',
             '                       /*add=*/k > 0);\n        }\n        if (was_bf16) out.copy_(out.to(at::kBFloat16));\n        return out;'),
            ('src/privacy/norm_sink.cpp', '  if (of.param == options_.tied_table) keep_tied_rows(of, factor_a, factor_g);',
             '  was_bf16 = a.scalar_type() == at::kBFloat16;\n  if (of.param == options_.tied_table) keep_tied_rows(of, factor_a, factor_g);'),
            ('src/privacy/norm_sink.cpp', 'void NormSink::add_ghost(', 'static bool was_bf16 = false;\nvoid NormSink::add_ghost(')],
           tests='NormSink.ProductsOfNarrowTypesAreNormedInFp32'),
    Mutant('q-from-batches', 'q is one over the number of batches',
           [('src/privacy/mechanism.cpp', 'r.q = *r.expected_batch / size;', 'r.q = 1 / std::ceil(size / *r.expected_batch);')],
           tests='Mechanism.*'),
    Mutant('booked-freed-early', 'what a block booked is let go when the next block reports',
           [('src/privacy/book_sink.cpp', '  const Place a_place = place_of(a), g_place = place_of(g);',
             '  for (size_t other = 0; other < pages_.size(); ++other) {\n    if (other != block_) pages_[other].clear();\n  }\n'
             '  const Place a_place = place_of(a), g_place = place_of(g);')],
           tests='PrivateStep.EveryPlanAndRuleIsTheMicroBatchOfOneLoop'),
    Mutant('nan-poisons-product', 'a sample that is not finite is multiplied by 0 (weight gradients)',
           [('src/privacy/clipped_sink.cpp', '    if (c[i] == 0) continue;\n', ''),  # BLAS does not read what it multiplies by 0, so the factor goes first
            ('src/privacy/clipped_sink.cpp', 'other.t(), one, /*beta=*/add ? 1 : 0, /*alpha=*/c[i]', 'other.t().mul(c[i]), one, /*beta=*/add ? 1 : 0')],
           tests='PrivateStep.ASampleThatIsNotFinite*:Clipping.ASampleThatIsNotFinite*',
           audit=(AUDITED + ' --mode ghost', "the canary 'not a number'")),
    Mutant('nan-poisons-kept', 'a sample that is not finite is multiplied by 0 (kept gradients, fused with the update)',
           [('src/kernels/noisy_update.cpp', '        if (factor == 0) continue;\n', '')],
           tests='PrivateStep.ASampleThatIsNotFinite*',
           audit=(AUDITED_FIXED, "the canary 'not a number'")),
    Mutant('nan-poisons-combined', 'a sample that is not finite is multiplied by 0 (kept and direct gradients)',
           [('src/kernels/sample_combine.cpp', '        if (c[i] == 0) continue;\n', '')],
           tests='PrivateStep.ASampleThatIsNotFinite*',
           audit=(AUDITED + ' --mode materialize', "the canary 'not a number'")),
    Mutant('tokens-squared-apart', "a sample's equal tokens are squared apart",
           [('src/kernels/sample_norm.cpp', 'for (; to < order.size() && ids[order[to]] == ids[order[from]]; ++to) {',
             'for (; to < order.size() && to == from; ++to) {')],
           tests='NormSink.ATiedTable*:PrivateStep.NormsAreTheSamplesOwn',
           verify=('--model llama-tiny --mode flash --strategy ddp', 'likely cause: repeated tokens'),
           audit=(AUDITED + ' --mode flash', 'sensitivity: the canary')),
    Mutant('fast-hash-in-tag', 'the replay tag knows a document by its fast hash, and two documents that collide share their noise',
           [('src/run/text_task.cpp', '    digest_ = data_.samples->store().digest();\n',
             '    Sha256 fast;\n    for (int64_t i = 0; i < data_.samples->store().header().documents; ++i)\n'
             '      fast.add(data_.samples->store().hash(i));\n    digest_ = fast.digest();\n')],
           tests='ProgramReplay.DocumentsThatCollide*:ProgramReplay.SoDoTokenStores*:ProgramReplay.ADocumentThatWasExchanged*'),
    Mutant('weights-not-in-nonce', 'a repeated run may start from other weights under the same nonce',
           [('src/privacy/journal.cpp', '    follows.add(input_.start.digest);\n', '')],
           tests='JournalTest.AGivenSecret*:ProgramReplay.WeightsThatDiffer*'),
    Mutant('checkpoint-not-hashed', 'a checkpoint with other bytes is replayed',
           [('src/privacy/journal.cpp', 'if (written_by_it && known.value(', 'if (false && known.value(')],
           tests='JournalTest.ACheckpointWithOtherBytes*:ProgramReplay.ACheckpointWithOtherBytes*'),
    Mutant('ledger-not-checked', 'a changed sigma in the ledger is a smaller epsilon in the export',
           [('src/privacy/journal.cpp', 'if (ours && schema != 1 &&', 'if (ours && schema == 7 &&')],
           tests='JournalTest.ALedgerThatWasChanged*'),
    Mutant('secret-not-the-ledgers', "a ledger of another secret is believed unchecked, although the run's own secret is there",
           [('src/privacy/journal.cpp', 'if (!ours && !own_secret.empty())', 'if (false && !own_secret.empty())')],
           tests='JournalTest.ASecretThatIsNotTheLedgers*'),
    Mutant('settings-not-checked', 'a flipped bit in the settings of a run without a checkpoint is another run',
           [('src/run/train_config.cpp', '(!check.is_null() && check != digest_text(sha256(found.dump())))', 'false')],
           tests='ProgramBitFlips.BeforeTheFirstCheckpoint*'),
    Mutant('statement-not-checked', "another sigma in an export's statement is a smaller epsilon of the next training",
           [('src/models/export.cpp', 'path.extension() == ".safetensors" || name == kPrivacyStatement;', 'path.extension() == ".safetensors";')],
           tests='ProgramDamage.AnExportsStatement*'),
    Mutant('checkpoint-bits-not-checked', 'a flipped bit in a checkpoint is trained on',
           [('src/train/checkpoint.cpp', 'const std::string damaged = hashed.get();', 'const std::string damaged;\n  hashed.wait();')],
           tests='ProgramDamage.ACheckpointWithAFlippedBit*'),
    Mutant('failed-arithmetic-looks-private', 'an epsilon that could not be computed is a small one',
           [('src/privacy/pld.cpp', 'if (!resolves(run) || delta < kPldLeastDelta) return {0, simple};', 'if (simple < 0) return {0, simple};'),
            ('src/privacy/pld.cpp', '{worst.lower, std::min(worst.upper, simple)}', 'worst')],
           tests='AccountantCorners.*Fails*:AccountantCorners.RandomExtremes*'),
    Mutant('philox-unqualified', 'the statement says nothing of noise that is not cryptographic',
           [('src/privacy/ledger.cpp', 'return event.generator == NoiseGenerator::philox;', 'return false;')],
           tests='PrivacyStatement.NoiseThatIsNotCryptographic*:ProgramReplay.NoiseThatIsNotCryptographic*'),
    Mutant('base-forgotten', 'a second private training states its own epsilon alone',
           [('src/privacy/journal.cpp', '  ledger_.base = mechanism.request().base;\n', '')],
           tests='ProgramReplay.ASecondPrivateTraining*'),
    Mutant('base-not-in-budget', 'the noise of a second private training is found as if it were the first',
           [('src/privacy/mechanism.cpp', '  if (before.empty())\n    return calibrate_sigma(', '  if (before.size() < 1000)\n    return calibrate_sigma(')],
           tests='PrivacyStatement.ABudgetIsForTheBase*'),
    Mutant('tokens-not-scanned', 'a token beyond the vocabulary stops the run at the step that draws it',
           [('src/run/text_data.cpp', 'if (config.privacy.is_private()) tokens->check_tokens();', '')],
           tests='ProgramReplay.ATokenBeyond*'),
    Mutant('other-ranks-unseen', 'the threads and environment of ranks other than 0 do not count',
           [('src/run/private_run.cpp', 'settings["the set of ranks"] = all_ranks;', '')],
           tests='ProgramReplayRanks.TheThreads*'),
    Mutant('more-than-c', 'coefficients let a fiftieth more through than C',
           [('src/engine/clip_state.cpp', '  clip_norms_.copy_(host);', '  clip_norms_.copy_(host.mul_(1.02));')],
           tests='Sensitivity.*',
           audit=(AUDITED, 'does not follow its privacy plan')),  # the run itself notices, before the audit measures
    Mutant('noise-ignores-c', 'the deviation of the noise is sigma, whatever C is',
           [('src/engine/clip_state.cpp', 'deviation = multiplier == 0 ? 0 : multiplier * std::sqrt(squares);',
             'deviation = multiplier == 0 || squares == 0 ? 0 : multiplier;')],
           verify=('--model llama-tiny --mode ghost --strategy ddp', 'the noise is not that of its own elements'),
           audit=(AUDITED, 'deviation of the noise')),
    Mutant('no-noise-when-fused', 'the update that clips kept gradients itself adds no noise',
           [('src/kernels/noisy_update.cpp', '      add_noise_range(', '      if (!c) add_noise_range(')],
           verify=('--model llama-tiny --mode ghost --strategy ddp', 'the update of a fixed batch has other noise'),
           audit=(AUDITED_FIXED, 'epsilon is at least')),
    Mutant('sampler-draws-3q', "the trainer's sampler draws at three times the rate that is accounted",
           [('src/train/trainer.cpp', 'samples_->count(), p.mechanism.q(),', 'samples_->count(), std::min(1.0, 3 * p.mechanism.q()),')],
           audit=(AUDITED, 'sampling: ')),
    Mutant('half-sigma', "the trainer's step has half the noise that is accounted",
           [('src/run/private_run.cpp', 'parts.step.noise_multiplier = mechanism_.noise_deviation(1);',
             'parts.step.noise_multiplier = mechanism_.noise_deviation(1) / 2;')],
           audit=(AUDITED, 'does not follow its privacy plan')),
    Mutant('mask-not-applied', 'prompts are trained on although the loss is on replies only',
           [('src/data/samples.cpp', 'targets[target] = kIgnoredTarget;', 'targets[target] += 0;')],
           tests='Replies.OnlyTrainedTokensAreTargets:ProgramData.ARecordWithoutATrainedTokenMovesNoParameter'),
    Mutant('mask-one-token-late', "a target takes the mask of the token before it",
           [('src/data/samples.cpp', 'trained[static_cast<size_t>(target + 1)]', 'trained[static_cast<size_t>(target)]')],
           tests='Replies.OnlyTrainedTokensAreTargets'),
    Mutant('mask-not-in-digest', 'the identity of the data does not cover what is trained on',
           [('src/data/token_store.cpp', '  if (header_.masked) all.add(', '  if (false) all.add(')],
           tests='Replies.AStoreOnDiskKeepsTheMask'),
    Mutant('cuts-cost-nothing', 'draws that are cut to a maximum add nothing to delta',
           [('src/privacy/batch_maximum.cpp', '  return tail == 0 ? 0 : (1 + std::exp(epsilon)) * tail;', '  return 0 * tail * epsilon;')],
           tests='BatchMaximum.*'),
    Mutant('draw-not-cut', 'a draw above the maximum is taken whole',
           [('src/privacy/sampler.cpp', '  if (options_.most > 0) draw = cut_draw(', '  if (options_.most > 0 && draw.empty()) draw = cut_draw(')],
           tests='PoissonOrder.UnderAMaximum*'),
    Mutant('user-gives-two', "where a micro-batch has room, the last user drawn contributes further samples",
           [('src/privacy/sampler.cpp', '    if (unit == data::kNoSample) continue;\n    unit = options_.users->sample(',
             '    if (unit == data::kNoSample) unit = last;\n    if (unit == data::kNoSample) continue;\n    unit = options_.users->sample('),
            ('src/privacy/sampler.cpp', '  if (!options_.users) return mine;\n',
             '  if (!options_.users) return mine;\n  int64_t last = data::kNoSample;\n'
             '  for (const int64_t unit : mine) last = unit == data::kNoSample ? last : unit;\n')],
           tests='PoissonOrder.EveryDrawnUser*:PoissonOrder.NeighboursThatDifferInAUser*:ProgramAudit.AUserIsTheUnit*'),
    Mutant('split-cuts-users', 'held-out parts are taken by document, so that one user is on both sides',
           [('src/data/samples.cpp', 'options_.owners ? options_.owners->hash(document) : store_->hash(document)', 'store_->hash(document)')],
           tests='UsersTest.HeldOutPartsTakeWholeUsers*'),
    Mutant('insecure-noise-exported', 'a model with noise that is not cryptographic is exported without a word',
           [('src/run/train_config.cpp', '      !p.allow_insecure_noise)', '      !p.allow_insecure_noise && false)')],
           tests='ProgramReplay.NoiseThatIsNotCryptographic*'),
    Mutant('image-bytes-not-in-tag', 'the replay tag knows an image by its name',
           [('src/data/image_source.cpp', 'return sha256(read_file(files_[static_cast<size_t>(sample)].path));',
             'return sha256(files_[static_cast<size_t>(sample)].path);')],
           tests='ProgramReplay.AnImageThatWasExchanged*'),
    Mutant('keys-of-one-domain', 'the sampler draws with the key of the noise',
           [('src/run/rank_keys.cpp', '.sampling = derive_key(secret, nonce, KeyDomain::sampling)', '.sampling = derive_key(secret, nonce, KeyDomain::noise)')],
           tests='RankKeys.EveryUseHasAKey*'),
    Mutant('nonce-of-its-own', "a rank that has the secret derives its keys from a nonce of its own",
           [('src/run/rank_keys.cpp', '  shared.keys = run_keys(*secret, common);', '  shared.keys = run_keys(*secret, nonce);')],
           tests='RankKeys.NeitherKeyNorSecret*'),
    Mutant('coins-not-tossed', 'every canary of a run is in it, whatever its coin says',
           [('src/run/run_canaries.cpp', '{rows_, present_, first}', '{rows_, std::vector<bool>(rows_.size(), true), first}')],
           tests='ProgramAudit.CanariesOfARunWithLittleNoise*'),
    Mutant('adapter-scale-forgotten', "the gradient of an adapter's B lacks the factor alpha / rank",
           [('src/nn/projection.cpp', '                  /*beta=*/0, /*alpha=*/adapters.scale);\n    inner = inner', '                  /*beta=*/0, /*alpha=*/1);\n    inner = inner')],
           tests='AdapterStep.GradientsAre*'),
    Mutant('adapter-norm-left-out', "a sample's norm leaves out the adapters' B, whose input is only as wide as the rank",
           [('src/privacy/norm_sink.cpp', '  if (of.param == options_.tied_table) keep_tied_rows(of, factor_a, factor_g);',
             '  if (factor_a.size(2) <= 4) return;\n  if (of.param == options_.tied_table) keep_tied_rows(of, factor_a, factor_g);')],
           tests='AdapterStep.EveryFamilyIsClipped*'),
    Mutant('moments-not-resumed', 'a resumed run begins with moments of 0',
           [('src/engine/stored_state.cpp', '      fill(s, optimizer_state(u, s), u);', '      if (s < 0) fill(s, optimizer_state(u, s), u);')],
           tests='ProgramLora.APrivateRunThatWasStopped*'),
    Mutant('adapter-not-a-base', 'the privacy.json of an adapter that is trained on is not counted',
           [('src/run/train_run.cpp', '    if (!source.adapter) return base;', '    if (!source.adapter || !base) return base;')],
           tests='ProgramLora.APrivateRunWrites*'),
    Mutant('cache-one-late', 'the first new token takes the position after its own',
           [('src/models/text_generator.cpp', '  s.step.positions.copy_(at).add_(1);', '  s.step.positions.copy_(at).add_(2);')],
           tests='TextGeneratorGolden.GreedyText*'),
    Mutant('padded-prompt-is-seen', 'a new token of a short prompt attends to what pads it',
           [('src/nn/decode_attention.cpp', '    if (!step.equal_lengths || a.slides(step.longest))', '    if (a.slides(step.longest))')],
           tests='TextGenerator.ATextDependsOnItsNumber*:TextGeneratorGolden.GreedyText*'),
    Mutant('top-p-one-too-few', 'top-p leaves out the token that reaches the wanted probability',
           [('src/kernels/token_draw.cpp', 'own < rank || (own == rank && before < wanted)', 'own < rank')],
           tests='TokenDraw.TheDistribution*:TextGeneratorGolden.Filtered*'),
    Mutant('evaluation-of-means', "a data set's loss is the mean over samples, however many tokens each has",
           [('src/run/inference.cpp', 'loss += losses.data_ptr<double>()[i] * static_cast<double>(targets);',
             'loss += losses.data_ptr<double>()[i];'),
            ('src/run/inference.cpp', 'loss / static_cast<double>(found.tokens) : 0;', 'loss / static_cast<double>(found.samples) : 0;')],
           tests='ProgramText.EvaluationIsThatOfTraining*:ProgramText.EvaluationWeighs*'),
    Mutant('padding-is-evaluated', 'tokens that pad a sample count in its loss and in the perplexity',
           [('src/run/inference.cpp', 'host.targets[i].ne(data::kIgnoredTarget).sum().item<int64_t>()', 'host.targets[i].numel()')],
           tests='ProgramText.EvaluationIsThatOfTraining*:ProgramText.EvaluationWeighs*'),
    Mutant('window-one-too-wide', 'a sliding window shows one token more',
           [('src/nn/attention.cpp', 'tril_(-a.window)', 'tril_(-a.window - 1)')],
           tests='LanguageGolden.LogitsLosses*:Attention.AWindow*'),
    Mutant('window-one-too-wide-in-cache', 'a sliding window shows one token more when text is generated',
           [('src/nn/decode_attention.cpp', 'places.le(own.sub(a.window))', 'places.lt(own.sub(a.window))')],
           tests='TextGeneratorGolden.GreedyText*:TextGenerator.*'),
    Mutant('query-norm-skipped', 'queries are not normalised (Qwen3, Gemma 3, OLMo 2)',
           [('src/nn/head_norms.cpp', '    put_columns(out, columns,\n                columns.norm.forward(params, rows_of_columns(joint, columns), {}, statistics));',
             '    const Tensor rows = rows_of_columns(joint, columns);\n'
             '    put_columns(out, columns, columns.first == 0 ? rows : columns.norm.forward(params, rows, {}, statistics));')],
           tests='LanguageGolden.LogitsLosses*'),
    Mutant('token-of-the-padding', "a classifier reads a sample's last position, padding or not",
           [('src/nn/transformer_block.cpp', '  if (l_.padding_id < 0) return places', '  if (l_.padding_id < 1 << 30) return places')],
           'LanguageGolden.LogitsLosses*'),
    Mutant('positions-from-padding', "RoBERTa's positions begin at the padding's instead of behind it",
           [('src/nn/encoder_embedding.cpp', 'positions.mul_(real).add_(padding_id);', 'positions.sub_(1).mul_(real).add_(padding_id);')],
           tests='LanguageGolden.LogitsLosses*'),
    Mutant('no-byte-fallback', 'a character outside the vocabulary becomes the unknown token',
           [('src/data/bpe.cpp', '    if (all_bytes) {\n', '    if (all_bytes && first_.unknown < 0) {\n')],
           tests='BpeTokenizerTest.WhatIsNotInTheVocabulary*:TokenizerGolden.*'),
    Mutant('end-of-turn-untrained', 'a reply ends before the token that ends its turn',
           [('src/data/chat.cpp', 'result_.replies.push_back({begin, result_.text.size()});', 'result_.replies.push_back({begin, begin + content.size()});')],
           tests='Replies.*:ChatGolden.*'),
    # --- ranks that hang, strangers and stop signals
    Mutant('any-hello-accepted', 'a rank joins over TCP without the proof that it has the job token',
           [('src/comm/tcp_link.cpp', 'return port && same_secret(hello.proof,', 'return port || same_secret(hello.proof,')],
           tests='RankFailuresOverTcp.ARankWithAnotherTokenIsRefused'),
    Mutant('suspended-time-counts', 'the time in which the whole job was suspended counts as waiting',
           [('src/comm/wait_clock.cpp', 'constexpr double kMostGapMs = 2000;', 'constexpr double kMostGapMs = 1e12;')],
           tests='WaitClock.TimeInWhichTheProcessItselfWasStopped*'),
    Mutant('hung-rank-unnamed', 'nobody knows which ranks a collective waits for',
           [('src/comm/wire_tcp.cpp', '        ranks.push_back(static_cast<int>(rank));', '        continue;'),
            ('src/comm/wire_mpi.cpp', 'if (!done) ranks.insert(peers_[i]);', '')],
           tests='TcpWireTest.WhoHasNotSentIsKnown:RankFailures.AHungRankIsNamedUnderPlainMpirun'),
    Mutant('stray-byte-blocks', 'rank 0 waits for the rest of a message that a stranger has begun',
           [('src/comm/socket_message.cpp', 'recv(fd, piece, sizeof piece, MSG_DONTWAIT)', 'recv(fd, piece, sizeof piece, 0)')],
           tests='RankWatchTest.AStrayByteHoldsNobodyUp'),
    Mutant('hangup-unheard', 'SIGHUP ends a run without a checkpoint',
           [('src/comm/stop_signals.h', '{SIGINT, SIGTERM, SIGHUP, SIGUSR1,', '{SIGINT, SIGTERM, SIGUSR1,')],
           tests='ProgramTrain.AStopSignalLeavesACheckpoint*'),
    Mutant('mpirun-asked', '--ranks leaves it to mpirun to pass the request to stop on',
           [('src/comm/launch_local.cpp', 'watch.signal_ranks(kAskSignal);', 'process.signal(kAskSignal);')],
           tests='ProgramTrain.AStopSignalToTheLauncherOfTwoRanksReachesThem*'),
    Mutant('nohup-unheeded', 'a run under nohup stops with its terminal',
           [('src/comm/stop_signals.h', 'return signal != SIGHUP ||', 'return true ||')],
           tests='ProgramTrain.ARunUnderNohup*'),
    # --- files and numbers
    Mutant('export-not-checked', 'a flipped bit in the weights of an export is loaded',
           [('src/models/export.cpp', 'if (digest == digest_text(digest_of_file(path.string()))) continue;', 'if (name != kPrivacyStatement) continue;')],
           tests='Export.WeightsThatAreNotAsTheyWereExported*'),
    Mutant('rest-not-hashed', 'the last bytes of a file, which fill no piece, are not in its digest',
           [('src/base/file_digest.cpp', 'bytes_ / kFilePiece + (ended_ ? 1 : 0)', 'bytes_ / kFilePiece')],
           tests='Sha256Files.*'),
    Mutant('hashed-before-written', 'a piece is hashed before all of it is written',
           [('src/base/file_digest.cpp', '(next_ + 1) * group_ <= pieces(); });', 'next_ * group_ < pieces(); });')],
           tests='Sha256Files.*'),
    Mutant('cut-store-read', 'a token store that was cut is read where it has no bytes any more',
           [('src/data/token_store.cpp', 'if (descriptor < 0) return;\n    struct stat status {};', 'return;\n    struct stat status {};')],
           tests='TokenStoreTest.AFileThatIsCut*'),
    Mutant('limits-not-enforced', 'a number may be anything, whatever its option allows',
           [('src/cli/option_values.cpp', 'return (!spec.minimum || value >=', 'if (value == value) return true;\n  return (!spec.minimum || value >=')],
           tests='ProgramNumbers.OfEveryCommand*'),
    Mutant('folder-for-all', "a run's folder is open to everybody whom the umask lets in",
           [('src/base/folders.cpp', 'mkdir(place.c_str(), 0700)', 'mkdir(place.c_str(), 0777)')],
           tests='Folders.AreMadeForTheirOwnerAlone*'),
    Mutant('size-wraps', 'the bytes of a step are multiplied in 64 bits',
           [('src/run/size_check.cpp', 'cost.most() * real(sizes.batch));',
             'real(static_cast<int64_t>(static_cast<uint64_t>(cost.most()) * static_cast<uint64_t>(sizes.batch))));')],
           tests='SizeCheck.*'),
    Mutant('tokens-wrap', "an image's tokens are multiplied in 64 bits",
           [('src/run/size_check.cpp', 'tokens = side * side;', 'tokens = real(static_cast<int64_t>(static_cast<uint64_t>(side) * static_cast<uint64_t>(side)));')],
           tests='SizeCheck.*'),
    Mutant('position-cast', "a checkpoint's position is cast before it is compared",
           [('src/data/order.cpp', 'value.is_number_integer() && value >= 0', 'value.is_number() && value >= 0')],
           tests='Position.*'),
    # --- pages, remedies and laws of growth
    Mutant('page-name-unescaped', "a record's name is markup in the tables of a page",
           [('src/report/html.cpp', '<td{}>{}</td>", style(i), escaped(cells[i]))', '<td{}>{}</td>", style(i), cells[i])')],
           tests='Report.HostileText*:HostileNames.*'),
    Mutant('remedy-said-to-fit', 'every remedy is said to fit',
           [('src/run/remedies.cpp', '.fits = price.bytes <= room_,', '.fits = true,')],
           tests='Remedies.EachNeedsLess*'),
    Mutant('largest-law-chosen', 'the law with most terms is named, though fewer suffice',
           [('src/report/fits.cpp', 'fit.deviation = deviation_of(scaled, *terms);\n    break;', 'fit.deviation = deviation_of(scaled, *terms);')],
           tests='GrowthFit.*'),
    Mutant('percent-of-the-private', 'what privacy costs is a share of the private step, not of the plain one',
           [('src/suite/mode_costs.cpp', 'std::abs(ms - base_ms) / base_ms)', 'std::abs(ms - base_ms) / ms)')],
           tests='VerdictClaims.NothingFalse*:DitVerdict.*'),
    Mutant('axis-without-unit', 'an axis of time does not say milliseconds',
           [('src/suite/growth_plots.cpp', '"ms per step", "step", 1', '"time", "step", 1')],
           tests='SuitePlots.*'),
    Mutant('fastest-norms-named', 'the layer whose norms take least is named',
           [('src/suite/layer_norms.cpp', 'std::max_element(norms.begin()', 'std::min_element(norms.begin()')],
           tests='VerdictClaims.NothingFalse*:LayerNorms.*'),
    Mutant('plan-of-its-own', "a rank takes the clip plan that its own prices choose, not rank 0's",
           [('src/run/ranks.cpp', '  if (!lane || lane->backend() == "simulated") return mine;', '  return mine;')],
           tests='*RanksWithOtherPricesTakeRank0sPlan'),
    Mutant('plan-not-kept', 'prices that were measured since change the clip plan of a run',
           [('src/run/private_run.cpp', '  if (!before.is_object() || !before.contains(kClipPlan)) return {};', '  return {};')],
           tests='*PricesThatWereMeasuredSinceDoNotChange*'),
    Mutant('old-removed-first', 'the checkpoints before the newest are removed before it is known to be whole',
           [('src/run/train_run.cpp', '    check_frozen(checkpoint_state(*checkpoint), *checkpoint);',
             '    remove_old_checkpoints(folder_, *executor_, config_.training.keep_checkpoints);\n'
             '    check_frozen(checkpoint_state(*checkpoint), *checkpoint);')],
           tests='*AtResumeOneCheckpointTooMany*'),
    Mutant('any-host', 'a certificate that names another host is taken',
           [('src/data/http_curl.cpp', '    if (!authorities.empty())', '    curl_easy_setopt(handle, CURLOPT_SSL_VERIFYHOST, 0L);\n    if (!authorities.empty())')],
           tests='HubFetch.ACertificateOfAnotherHost*'),
    Mutant('names-of-any-files', "names in a checkpoint's state may lead out of its folder",
           [('src/train/checkpoint_files.cpp', 'if (!digest.is_string() || !is_rank_file(name)) return false;', 'if (!digest.is_string() || (is_rank_file(name), false)) return false;')],
           tests='*CheckpointFiles*'),
]


def fail(text):
    print(f'mutants: {text}', file=sys.stderr)
    sys.exit(2)


def copy_tree(folder):
    """What git knows or would take, with the times it has, so that a second run builds little."""
    listed = subprocess.run(['git', 'ls-files', '-z', '--cached', '--others', '--exclude-standard'], cwd=ROOT, check=True, capture_output=True).stdout
    wanted = {name for name in listed.decode().split('\0') if name and (ROOT / name).is_file()}
    for name in wanted:
        source, target = ROOT / name, folder / name
        if target.exists() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        shutil.copymode(source, target)
    for path in sorted(folder.rglob('*')):
        name = path.relative_to(folder)
        if path.is_file() and name.parts[0] != 'build' and str(name) not in wanted:
            path.unlink()


class Build:
    def __init__(self, folder, jobs):
        self.folder, self.jobs = folder, jobs
        # Objects of the unchanged source come from the cache that the checkout's own build filled.
        self.environment = dict(os.environ, OMP_NUM_THREADS='1', CCACHE_BASEDIR=str(folder), CCACHE_NOHASHDIR='true')
        goldens = ROOT.parent / 'shared' / 'goldens'
        if goldens.exists():
            self.environment.setdefault('VEIL_GOLDENS', str(goldens))

    def configure(self):
        self.say_if_failed(subprocess.run(['scripts/build.sh', 'release', str(self.jobs), '--configure-only'], cwd=self.folder, env=self.environment,
                                          capture_output=True, text=True))

    def make(self, targets):
        """Whether it compiles."""
        ninja = os.environ.get('VEIL_NINJA', 'ninja')
        return subprocess.run([ninja, '-C', 'build', '-j', str(self.jobs), '--quiet', *targets], cwd=self.folder, env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @staticmethod
    def say_if_failed(done):
        if done.returncode:
            fail('the unchanged source does not build:\n' + ((done.stdout or '') + (done.stderr or ''))[-3000:])

    def run(self, mutant):
        """The names of the tests that failed; an empty list where all passed. A crash counts as a failure of the whole filter."""
        failed = []
        runs = [(['build/tests/veil_tests'], mutant.tests)] if mutant.tests else []
        runs += [(['build/tests/veil_rank_tests', '--ranks', str(world)], tests) for world, tests in mutant.ranks.items()]
        for command, tests in runs:
            try:
                done = subprocess.run([*command, f'--gtest_filter={tests}', '--gtest_brief=1'], cwd=self.folder, env=self.environment,
                                      capture_output=True, text=True, timeout=900)
            except subprocess.TimeoutExpired:
                failed.append(f'{tests} (no end)')
                continue
            if '] 0 tests from' in done.stdout:
                fail(f'{mutant.name}: no test is called {tests}')
            if done.returncode:
                lines = [line.split(']')[1].split('(')[0].strip().rstrip(',') for line in done.stdout.splitlines() if line.startswith('[  FAILED  ]')]
                named = [line.split()[0] for line in lines if '.' in line.split()[0]] if lines else []
                failed += list(dict.fromkeys(named)) or [f'{tests} (exit {done.returncode})']
        return failed

    def says(self, command, code, cause):
        """Whether the program ends with this code and says this."""
        done = subprocess.run(['build/veil', *command], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=900)
        return done.returncode == code and cause in done.stdout + done.stderr

    def verified(self, mutant):
        """Whether `veil verify` fails and names the cause."""
        words, cause = mutant.verify
        return self.says(['verify', '--device', 'cpu', '--seq-length', '12', *words.split()], 1, cause)

    def audited(self, words, code, cause):
        """Whether `veil audit mechanism` ends so."""
        return self.says(['audit', 'mechanism', '--output-dir', '', '--', *words.split()], code, cause)


def targets_of(mutants):
    targets = set()
    for mutant in mutants:
        targets |= ({'veil_tests'} if mutant.tests else set()) | ({'veil_rank_tests'} if mutant.ranks else set())
        targets |= {'veil'} if mutant.verify or mutant.audit else set()
    return sorted(targets)


def with_mistake(folder, mutant):
    """The files as they stand with the mistake; fails where an anchor is not there exactly once."""
    changed = {}
    for name, text, mistake in mutant.edits:
        content = changed.get(name) or (folder / name).read_text()
        if content.count(text) != 1:
            fail(f'{mutant.name}: {name} has {content.count(text)} times\n{text}')
        changed[name] = content.replace(text, mistake)
    return changed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    parser.add_argument('--only', nargs='+', metavar='NAME')
    parser.add_argument('--list', action='store_true')
    parser.add_argument('--folder', default=str(ROOT / 'build-mutants'))
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if not options.only or mutant.name in options.only]
    for name in options.only or []:
        if name not in {mutant.name for mutant in MUTANTS}:
            fail(f'no mutant is called {name}')
    if options.list:
        for mutant in chosen:
            print(f'{mutant.name:24} {mutant.mistake}')
        return
    for mutant in chosen:
        with_mistake(ROOT, mutant)  # anchors first: minutes pass before the builds end
    tree = Path(options.folder) / 'tree'
    tree.mkdir(parents=True, exist_ok=True)
    copy_tree(tree)
    build = Build(tree, options.jobs)
    build.configure()
    print('building the source as it is', flush=True)
    build.say_if_failed(build.make(targets_of(chosen)))
    for tests in {mutant.tests: mutant for mutant in chosen if mutant.tests}.values():
        if failed := build.run(Mutant('unchanged', '', [], tests=tests.tests)):
            fail('without any mistake these fail: ' + ', '.join(failed))
    for world, tests in {(world, tests) for mutant in chosen for world, tests in mutant.ranks.items()}:
        if failed := build.run(Mutant('unchanged', '', [], ranks={world: tests})):
            fail('without any mistake these fail: ' + ', '.join(failed))
    for words in sorted({mutant.audit[0] for mutant in chosen if mutant.audit}):
        if not build.audited(words, 0, 'verdict   pass'):
            fail('without any mistake this fails: veil audit mechanism -- ' + words)
    survived = []
    for mutant in chosen:
        begin = time.time()
        changed = with_mistake(tree, mutant)
        before = {name: (tree / name).read_text() for name in changed}
        try:
            for name, content in changed.items():
                (tree / name).write_text(content)
            made = build.make(targets_of([mutant]))
            if made.returncode:  # the others are still worth their time; this one counts as not caught
                print(f'{mutant.name} DOES NOT COMPILE:\n{made.stdout[-3000:]}', flush=True)
                survived.append(mutant.name)
                continue
            failed = build.run(mutant)
            silent = []
            for name, wanted, found in (('veil verify', mutant.verify, build.verified),
                                        ('veil audit', mutant.audit, lambda m: build.audited(m.audit[0], 1, m.audit[1]))):
                if wanted:
                    (failed if found(mutant) else silent).append(f'{name}, by its cause' if name == 'veil verify' else name)
        finally:
            for name, content in before.items():
                (tree / name).write_text(content)
        tested = not (mutant.tests or mutant.ranks) or any('.' in name or '*' in name for name in failed)
        caught = failed and tested and not silent
        if not caught:
            survived.append(mutant.name)
        verdict = 'caught by ' + ', '.join(failed) if failed else 'SURVIVED'
        verdict += ''.join(f'; {name.split(",")[0]} SAYS NOTHING OF IT' for name in silent)
        verdict += '' if tested else '; no test FAILED'
        print(f'{mutant.name:24} {mutant.mistake}: {verdict} ({time.time() - begin:.0f} s)', flush=True)
    print(f'{len(chosen) - len(survived)} of {len(chosen)} mutants caught')
    if survived:
        print('survived: ' + ', '.join(survived))
        sys.exit(1)


if __name__ == '__main__':
    main()
