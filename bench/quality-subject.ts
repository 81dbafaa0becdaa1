/**
 * Judges what a node says of a subject (SUBJECT_RULES of serving/picture/finishing/layout.ts): which
 * pictures have none, which are unsure, which are cut off. Each source, a photo with all that is
 * made of it or a kind of pattern, is judged by the thresholds that are best on the others. And
 * what framed looks change (FRAMED_RULES of serving/picture/framed-look.ts), likewise.
 *
 * Usage: quality-subject.ts [--plan standard] [--keep DIRECTORY] [--minutes N] FOLDER... each as
 *   quality.ts takes them; --keep: models' mattes, for the next time; --minutes: after which it
 *   begins no picture. The first time takes some 3 s of processor time a picture, of which there
 *   are about 900.
 */
import { parseArgs } from 'node:util';
import {
  EDGE,
  findSubject,
  SUBJECT_RULES,
  sumCells,
} from '../inference-node/serving/picture/finishing/layout.ts';
import {
  FRAMED_RULES,
  type FramedRules,
  isBelieved,
} from '../inference-node/serving/picture/framed-look.ts';
import type { RoleMatte } from '../inference-node/serving/picture/matte/merge-mattes.ts';
import { refineMatte } from '../inference-node/serving/picture/matte/refine.ts';
import { unsureShare as pictureUnsureShare } from '../inference-node/serving/picture/worth-running.ts';
import { at } from '../test/support/at.ts';
import { leaveOneOut } from './quality/cross-validation.ts';
import { measureHoles } from './quality/holes.ts';
import { bootstrap, mean } from './quality/intervals.ts';
import { measureQuickly } from './quality/matte-metrics.ts';
import { openModelRunner } from './quality/model-runner.ts';
import type { Photo } from './quality/photos.ts';
import { entriesOf, inferPlan } from './quality/plan-runner.ts';
import type { Plane } from './quality/plane.ts';
import {
  listSamples,
  NoPieceError,
  type Sample,
  type SampleKind,
} from './quality/subject-samples.ts';
import { writeResults } from './results.ts';

interface Measured {
  readonly name: string;
  readonly source: string;
  readonly kind: SampleKind;
  /** Pixels of each value of alpha. */
  readonly values: readonly number[];
  /** Cells whose largest alpha is each. */
  readonly peaks: readonly number[];
  /** Of the border, what is solid in the result and in the reference. */
  readonly border: number;
  readonly trueBorder: number;
  readonly errors: ReturnType<typeof measureQuickly> & ReturnType<typeof measureHoles>;
  /** Of the true subject's alpha, what the result has. */
  readonly found: number;
  /** As a node would say it now; undefined: no subject. */
  readonly said: { readonly unsure: boolean; readonly cutOff: boolean } | undefined;
}

/** A picture without a framed look, and with one where the first is unsure, believed or not. */
interface Pair {
  readonly source: string;
  readonly plain: Measured;
  readonly framed: Measured | undefined;
  /** Whether the framed one counts by rules. */
  readonly counts: (rules: FramedRules) => boolean;
}

/** A subject of which the result has less is lost, whatever is said of it. */
const SHOWN_FROM = 0.25;
/** Of the mean squared error: from it on a matte is bad. */
const BAD_MSE = 0.02;
const SOLID_FROM = [96, 128, 160, 192, 230];
const SOLID_SHARES = [0.0001, 0.0003, 0.001, 0.003, 0.01];
const UNSURE_SHARES = [0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5];
const NEVER_FRAMED: FramedRules = { ...FRAMED_RULES, unsureShareMin: Number.POSITIVE_INFINITY };
const UNSURE_FROM = [0.25, 0.3, 0.4];
const ALWAYS_BELIEVED: FramedRules = {
  unsureShareMin: Math.min(...UNSURE_FROM),
  cutOffShareMin: 0,
  sideShareMax: Number.POSITIVE_INFINITY,
  unsureShareMax: Number.POSITIVE_INFINITY,
  keptShareMin: 0,
  agreementLossMax: 1,
  agreementMin: 0,
};
const FRAMED_VALUES: Readonly<Record<keyof FramedRules, readonly number[]>> = {
  unsureShareMin: UNSURE_FROM,
  cutOffShareMin: [0, 0.05],
  sideShareMax: [0.2, 0.4, 0.9],
  unsureShareMax: [0.5, 0.6, 0.8],
  keptShareMin: [0, 0.9, 0.95],
  agreementLossMax: [0, 0.05, 1],
  agreementMin: [0.8, Number.POSITIVE_INFINITY],
};
const FRAMED_CANDIDATES = Object.entries(FRAMED_VALUES).reduce<readonly FramedRules[]>(
  (all, [name, options]) => all.flatMap(rules => options.map(one => ({ ...rules, [name]: one }))),
  [FRAMED_RULES],
);
/** What is shown of a picture of nothing weighs so much, to what is wrong in another. */
const INVENTED_WEIGHT = 3;
/** Of the error in SAD without a framed look: a picture that has more is worse. */
const WORSE_RATIO = 1.05;
/** What a picture of a subject weighs that is called empty, to an empty one that is not. */
const LOST_WEIGHT = 20;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plan: { type: 'string', default: 'standard' },
    keep: { type: 'string' },
    minutes: { type: 'string', default: 'Infinity' },
  },
});
if (positionals.length === 0) throw new Error('usage: quality-subject.ts [options] FOLDER...');
const entries = await entriesOf({ plan: values.plan });
const models = openModelRunner(values.keep);

function measure(sample: Sample, { picture, alpha }: Made, matte: Uint8Array): Measured {
  let [both, all] = [0, 0];
  for (let i = 0; i < matte.length; i++) {
    both += Math.min(at(matte, i), at(alpha, i));
    all += at(alpha, i);
  }
  const { name, source, kind } = sample;
  const { width, height } = picture;
  const planes = [matte, alpha].map(data => ({ data, width, height })) as [Plane, Plane];
  return {
    ...{ name, source, kind, values: countBytes(matte) },
    peaks: countBytes(sumCells(matte, picture).peaks),
    border: borderShare(matte, picture),
    trueBorder: borderShare(alpha, picture),
    errors: { ...measureQuickly(...planes), ...measureHoles(...planes) },
    found: all === 0 ? 0 : both / all,
    said: findSubject(matte, picture),
  };
}

type Made = Pick<Photo, 'picture' | 'alpha'>;

function borderShare(alpha: Uint8Array, { width, height }: { width: number; height: number }) {
  let solid = 0;
  const look = (x: number, y: number) => {
    if (at(alpha, y * width + x) >= SUBJECT_RULES.solidFrom) solid += 1;
  };
  for (let x = 0; x < width; x++) for (const y of [0, height - 1]) look(x, y);
  for (let y = 0; y < height; y++) for (const x of [0, width - 1]) look(x, y);
  return solid / (2 * (width + height));
}

async function measurePair(sample: Sample): Promise<Pair> {
  const made = await sample.make();
  const { picture } = made;
  const judge = (mattes: readonly RoleMatte[]) =>
    measure(sample, made, refineMatte(mattes, picture));
  const mattes = await inferPlan(entries, models, picture, { framed: NEVER_FRAMED });
  const first = at(mattes, 0).alpha;
  const all = await inferPlan(entries, models, picture, { framed: ALWAYS_BELIEVED });
  const [look, ...others] = all.map(({ alpha, role, width, height }) => {
    return { alpha, role, size: { width, height } };
  });
  const isFramed = look !== undefined && look.alpha.length !== first.length;
  return {
    source: sample.source,
    plain: judge(mattes),
    framed: isFramed ? judge(all) : undefined,
    counts: rules =>
      isFramed &&
      pictureUnsureShare(first) >= rules.unsureShareMin &&
      isBelieved(look, others, rules),
  };
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

function countBytes(bytes: Uint8Array): number[] {
  const counts = new Array<number>(256).fill(0);
  for (const byte of bytes) counts[byte] = at(counts, byte) + 1;
  return counts;
}

const sum = (counts: readonly number[]) => counts.reduce((all, count) => all + count, 0);
const shareFrom = (counts: readonly number[], from: number) =>
  sum(counts.slice(from)) / sum(counts);
const unsureShare = ({ values: counts }: Measured) =>
  sum(counts.slice(EDGE, SUBJECT_RULES.unsureBelow)) / (sum(counts.slice(EDGE)) || 1);
const isShown = (one: Measured) => one.kind === 'whole' || one.found >= SHOWN_FROM;

/** One verdict a picture, each by the thresholds that are best on the other sources. */
function crossValidated<One extends { readonly source: string }, Rule>(
  all: readonly One[],
  rules: readonly Rule[],
  verdict: (one: One, rule: Rule) => boolean,
  loss: (one: One, verdict: boolean) => number,
): Map<One, boolean> {
  const losses = rules.map(rule => all.map(one => loss(one, verdict(one, rule))));
  const sources = all.map(({ source }) => source);
  const folds = leaveOneOut(sources, losses);
  const chosen = new Map(folds.map(({ group, chosen: index }) => [group, at(rules, index)]));
  return new Map(all.map(one => [one, verdict(one, chosen.get(one.source) as Rule)]));
}

function share(all: readonly Measured[], is: (one: Measured) => boolean): string {
  const { value, low, high } = bootstrap(
    all,
    ({ source }) => source,
    some => mean(some, one => Number(is(one))),
  );
  const percent = (number: number) => (100 * number).toFixed(1);
  return `${percent(value)} % (${percent(low)} to ${percent(high)}) of ${all.length}`;
}

function judgeEmpty(all: readonly Measured[], isEmpty: (one: Measured) => boolean) {
  const of = (...kinds: SampleKind[]) => all.filter(({ kind }) => kinds.includes(kind));
  const crops = of('crop');
  return {
    wholeCalledEmpty: share(of('whole'), isEmpty),
    cropsCalledEmpty: share(crops, isEmpty),
    cropsShownCalledEmpty: share(crops.filter(isShown), isEmpty),
    ghostsCalledEmpty: share(
      crops.filter(one => !isShown(one)),
      isEmpty,
    ),
    filledCalledEmpty: share(of('filled'), isEmpty),
    emptyFound: share(of('empty'), isEmpty),
    emptyOfPhotosFound: share(
      of('empty').filter(({ name }) => name.split('/').length === 3),
      isEmpty,
    ),
  };
}

function judgeUnsure(seen: readonly Measured[], isUnsure: (one: Measured) => boolean) {
  const ratio = bootstrap(
    seen,
    ({ source }) => source,
    some => {
      const [unsure, sure] = [some.filter(isUnsure), some.filter(one => !isUnsure(one))];
      return mean(unsure, one => one.errors.mse) / mean(sure, one => one.errors.mse);
    },
  );
  const whole = seen.filter(({ kind }) => kind === 'whole');
  const bad = seen.filter(({ errors }) => errors.mse >= BAD_MSE);
  const numbers = [ratio.value, ratio.low, ratio.high].map(number => number.toFixed(1));
  return {
    mseRatio: `${numbers[0]} (${numbers[1]} to ${numbers[2]})`,
    of: share(seen, isUnsure),
    ofWhole: share(whole, isUnsure),
    ofBad: share(bad, isUnsure),
    badOfThose: share(seen.filter(isUnsure), ({ errors }) => errors.mse >= BAD_MSE),
  };
}

/** Ratios of means over the pictures of each kind to those without framed looks. */
function judgeFramed(chosen: ReadonlyMap<Pair, Measured>) {
  const kinds = ['whole', 'crop'] as const;
  const rows = kinds.map(kind => {
    const some = [...chosen].filter(([{ plain }]) => plain.kind === kind);
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
    const percent = (pick: (one: (typeof some)[number]) => number) =>
      Number((100 * mean(some, pick)).toFixed(2));
    return [
      kind,
      {
        pictures: some.length,
        ...{ mse: ratio('mse'), sad: ratio('sad'), gradient: ratio('gradient') },
        soft: ratio('softMae'),
        holes: [
          percent(([{ plain }]) => plain.errors.holes),
          percent(([, now]) => now.errors.holes),
        ],
        lost: [({ plain }: Pair) => plain, (pair: Pair) => chosen.get(pair)].map(
          pick => some.filter(([pair]) => (pick(pair)?.found ?? 0) < SHOWN_FROM).length,
        ),
        tried: some.filter(([{ framed }]) => framed).length,
        counted: changed.length,
        better: by.filter(sad => sad < 0.95).length,
        worse: changed
          .filter(([{ plain }, now]) => now.errors.sad > WORSE_RATIO * plain.errors.sad)
          .map(([{ plain }, now]) => [plain.name, plain.errors.mse, now.errors.mse]),
      },
    ] as const;
  });
  return Object.fromEntries(rows);
}

const pairs = await measureAll();
await models.close();
const framedLooks = crossValidated(
  pairs,
  FRAMED_CANDIDATES,
  ({ counts }, rules) => counts(rules),
  ({ plain, framed }, counts) =>
    (counts && framed ? framed : plain).errors.mse * (plain.kind === 'empty' ? INVENTED_WEIGHT : 1),
);
const chosenOf = (counts: (pair: Pair) => boolean) =>
  new Map(pairs.map(pair => [pair, counts(pair) && pair.framed ? pair.framed : pair.plain]));
const asChosen = chosenOf(({ counts }) => counts(FRAMED_RULES));
const leftOut = chosenOf(pair => framedLooks.get(pair) === true);
const measured = [...asChosen.values()];
const solidRules = SOLID_FROM.flatMap(from => SOLID_SHARES.map(least => ({ from, least })));
const empty = crossValidated(
  measured,
  solidRules,
  ({ peaks }, { from, least }) => shareFrom(peaks, from) < least,
  (one, isEmpty) => {
    if (one.kind === 'filled') return 0;
    if (one.kind === 'empty') return Number(!isEmpty);
    return isShown(one) && isEmpty ? LOST_WEIGHT : 0;
  },
);
const seen = measured.filter(({ kind, said }) => ['whole', 'crop'].includes(kind) && said);
const unsure = crossValidated(
  seen,
  UNSURE_SHARES,
  (one, least) => unsureShare(one) >= least,
  (one, isUnsure) => Number(isUnsure !== one.errors.mse >= BAD_MSE),
);
const { borderShareMin } = SUBJECT_RULES;
const isCut = ({ trueBorder }: Measured) => trueBorder >= borderShareMin;
writeResults('quality-subject', {
  pictures: Object.fromEntries(
    [...Map.groupBy(measured, ({ kind }) => kind)].map(([kind, some]) => [kind, some.length]),
  ),
  framedAsChosen: judgeFramed(asChosen),
  framedLeftOut: judgeFramed(leftOut),
  emptyUnframed: judgeEmpty(
    pairs.map(({ plain }) => plain),
    ({ said }) => said === undefined,
  ),
  emptyFramedLeftOut: judgeEmpty([...leftOut.values()], ({ said }) => said === undefined),
  emptyAsChosen: judgeEmpty(measured, ({ said }) => said === undefined),
  emptyLeftOut: judgeEmpty([...empty.keys()], one => empty.get(one) === true),
  unsureAsChosen: judgeUnsure(seen, ({ said }) => said?.unsure === true),
  unsureLeftOut: judgeUnsure(seen, one => unsure.get(one) === true),
  cutOff: {
    found: share(seen.filter(isCut), ({ said }) => said?.cutOff === true),
    wrong: share(
      seen.filter(one => !isCut(one)),
      ({ said }) => said?.cutOff === true,
    ),
  },
  notFound: measured.filter(({ kind, said }) => kind === 'empty' && said).map(({ name }) => name),
  lost: measured
    .filter(one => ['whole', 'crop'].includes(one.kind) && isShown(one) && !one.said)
    .map(({ name }) => name),
});
