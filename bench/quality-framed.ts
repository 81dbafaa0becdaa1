/**
 * Judges the constants of looks in a frame (FRAMED_RULES of serving/picture/framed-run.ts) by
 * cross-validation: each source of pictures by the constants that are best on the others. It takes
 * the mattes of a node's engines once, and decides over them by the product's own functions.
 *
 * Usage: quality-framed.ts [--plan standard] [--keep DIRECTORY] [--minutes N] FOLDER... as for
 *   quality-subject.ts; --keep: models' mattes, for the next time
 */
import { parseArgs } from 'node:util';
import { findSubject } from '../inference-node/serving/picture/finishing/subject.ts';
import { PLAN_RULES, type PlanRules } from '../inference-node/serving/picture/infer-plan.ts';
import type { RoleMatte } from '../inference-node/serving/picture/matte/merge-mattes.ts';
import {
  mergeToWorkingSize,
  refineMerged,
} from '../inference-node/serving/picture/matte/refine.ts';
import { at } from '../test/support/at.ts';
import { bootstrap, mean } from './quality/intervals.ts';
import { openModelRunner } from './quality/model-runner.ts';
import { entriesOf, openReplay } from './quality/plan-runner.ts';
import {
  crossValidated,
  judgeEmpty,
  type Measured,
  measure,
  SHOWN_FROM,
} from './quality/subject-figures.ts';
import { listSamples, NoPieceError, type Sample } from './quality/subject-samples.ts';
import { writeResults } from './results.ts';

type FramedRules = PlanRules['framed'];

/** A picture without a framed look, and with one where any of the rules believes it. */
interface Pair {
  readonly source: string;
  readonly plain: Measured;
  readonly framed: Measured | undefined;
  /** Whether the framed look counts, by each rule of CANDIDATES. */
  readonly counts: readonly boolean[];
}

const NEVER: FramedRules = { ...PLAN_RULES.framed, unsureShareMin: Number.POSITIVE_INFINITY };
const VALUES: Readonly<Record<keyof FramedRules, readonly number[]>> = {
  unsureShareMin: [0.25, 0.3, 0.4],
  cutOffShareMin: [0, 0.05],
  sideShareMax: [0.2, 0.4, 0.9],
  unsureShareMax: [0.5, 0.6, 0.8],
  keptShareMin: [0, 0.9, 0.95],
  agreementLossMax: [0, 0.05, 1],
  agreementMin: [0.8, Number.POSITIVE_INFINITY],
};
/** The rules in use come first: they win if others are no better. */
const CANDIDATES = [
  PLAN_RULES.framed,
  ...Object.entries(VALUES).reduce<readonly FramedRules[]>(
    (all, [name, options]) => all.flatMap(rules => options.map(one => ({ ...rules, [name]: one }))),
    [PLAN_RULES.framed],
  ),
];
/** Weight of an error in a picture of nothing, relative to an error in another picture. */
const INVENTED_WEIGHT = 3;
/** A picture is worse if its SAD is more than this multiple of that without a framed look. */
const WORSE_RATIO = 1.05;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plan: { type: 'string', default: 'standard' },
    keep: { type: 'string' },
    minutes: { type: 'string', default: 'Infinity' },
  },
});
if (positionals.length === 0) throw new Error('usage: quality-framed.ts [options] FOLDER...');
const entries = await entriesOf(values.plan);
const models = openModelRunner(values.keep);

async function measurePair(sample: Sample): Promise<Pair> {
  const made = await sample.make();
  const { picture } = made;
  const replay = openReplay(entries, models, picture);
  const mattesBy = async (framed: FramedRules) => (await replay({ ...PLAN_RULES, framed })).mattes;
  const judge = (mattes: readonly RoleMatte[]) => {
    const matte = refineMerged(mergeToWorkingSize(mattes, picture), picture);
    return measure(sample, made, matte, findSubject(matte, picture));
  };
  const plain = await mattesBy(NEVER);
  let believed: readonly RoleMatte[] | undefined;
  const counts: boolean[] = [];
  for (const rules of CANDIDATES) {
    const mattes = await mattesBy(rules);
    // A framed look that counts comes first, smaller than the first look that it replaces.
    const isFramed = at(mattes, 0).alpha.length !== at(plain, 0).alpha.length;
    if (isFramed) believed ??= mattes;
    counts.push(isFramed);
  }
  const framed = believed && judge(believed);
  return { source: sample.source, plain: judge(plain), framed, counts };
}

async function measureAll(): Promise<Pair[]> {
  const all: Pair[] = [];
  const endMs = performance.now() + 60_000 * Number(values.minutes);
  for (const sample of listSamples(positionals)) {
    if (performance.now() > endMs) break;
    try {
      all.push(await measurePair(sample));
    } catch (error) {
      // Not every photo has a ground, or a subject, that is large enough.
      if (!(error instanceof NoPieceError)) throw error;
    }
    if (all.length % 50 === 0) console.error(`${all.length} pictures`);
  }
  return all;
}

type Chosen = ReadonlyMap<Pair, Measured>;

/** Ratios of means over the pictures of a kind to those without framed looks. */
function judgeKind(chosen: Chosen, wanted: Measured['kind']) {
  const some = [...chosen].filter(([{ plain }]) => plain.kind === wanted);
  const ratio = (error: 'mse' | 'sad' | 'gradient' | 'softMae') => {
    const { value, low, high } = bootstrap(
      some,
      ([{ source }]) => source,
      drawn =>
        mean(drawn, ([, now]) => now.errors[error]) /
        mean(drawn, ([{ plain }]) => plain.errors[error]),
    );
    return `${value.toFixed(3)} (${low.toFixed(2)} to ${high.toFixed(2)})`;
  };
  const changed = some.filter(([{ plain }, now]) => now !== plain);
  const by = changed.map(([{ plain }, now]) => now.errors.sad / plain.errors.sad);
  const beforeAndNow = (figure: (one: Measured) => number) =>
    [some.map(([{ plain }]) => plain), some.map(([, now]) => now)].map(all =>
      Number(mean(all, figure).toFixed(4)),
    );
  return {
    pictures: some.length,
    ...{ mse: ratio('mse'), sad: ratio('sad'), gradient: ratio('gradient') },
    soft: ratio('softMae'),
    holes: beforeAndNow(one => one.errors.holes),
    lost: beforeAndNow(one => Number(one.found < SHOWN_FROM)),
    counted: changed.length,
    better: by.filter(sad => sad < 1 / WORSE_RATIO).length,
    worse: changed
      .filter(([{ plain }, now]) => now.errors.sad > WORSE_RATIO * plain.errors.sad)
      .map(([{ plain }, now]) => [plain.name, plain.errors.mse, now.errors.mse]),
  };
}

function judge(chosen: Chosen) {
  return {
    whole: judgeKind(chosen, 'whole'),
    crop: judgeKind(chosen, 'crop'),
    empty: judgeEmpty([...chosen.values()], ({ said }) => said === undefined),
  };
}

const pairs = await measureAll();
await models.close();
const leftOut = crossValidated(
  pairs,
  ({ counts }) => counts,
  ({ plain, framed }, counts) =>
    (counts && framed ? framed : plain).errors.mse * (plain.kind === 'empty' ? INVENTED_WEIGHT : 1),
);
const chosenOf = (counts: (pair: Pair) => boolean): Chosen =>
  new Map(pairs.map(pair => [pair, counts(pair) && pair.framed ? pair.framed : pair.plain]));
writeResults('quality-framed', {
  unframed: judge(chosenOf(() => false)),
  now: judge(chosenOf(({ counts }) => counts[0] === true)),
  leftOut: judge(chosenOf(pair => leftOut.get(pair) === true)),
});
