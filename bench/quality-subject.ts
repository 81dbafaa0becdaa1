/**
 * Judges what a node says of a subject (SUBJECT_RULES of serving/picture/finishing/subject.ts): which
 * pictures have none, which are unsure, which are cut off. The pictures go through a node, as a
 * caller sends them. Each source, a photo with all that is made of it or a kind of pattern, is also
 * judged by the thresholds that are best on the others, over the alpha that the node answered.
 *
 * Usage: quality-subject.ts [--plan standard] [--kinds crop,empty] [--minutes N] FOLDER... each as
 *   quality.ts takes them; --kinds: of whole, crop, filled and empty; --minutes: after which it
 *   begins no picture. It takes some 3 s of processor time a picture, of which there are about
 *   900.
 */
import { parseArgs } from 'node:util';
import {
  gatherCells,
  hasSolid,
  SUBJECT_RULES,
  unsureOfShown,
} from '../inference-node/serving/picture/finishing/subject.ts';
import { bootstrap, mean } from './quality/intervals.ts';
import { encodeSent, openPlanNode, type PlanNode } from './quality/plan-node.ts';
import {
  crossValidated,
  isShown,
  judgeEmpty,
  type Measured,
  measure,
  SHOWN_FROM,
  share,
} from './quality/subject-figures.ts';
import { listSamples, NoPieceError, type Sample } from './quality/subject-samples.ts';
import { writeResults } from './results.ts';

/** A result with what other thresholds would say about it. */
interface Judged extends Measured {
  /** Whether nothing is solid, by each rule of SOLID_RULES. */
  readonly empty: readonly boolean[];
  /** Whether it is unsure, by each share of UNSURE_SHARES. */
  readonly unsure: readonly boolean[];
  readonly roles: readonly string[];
}

/** A matte is bad from this mean squared error on. */
const BAD_MSE = 0.02;
const SOLID_RULES = [96, 128, 160, 192, 230].flatMap(solidFrom =>
  [0.0001, 0.0003, 0.001, 0.003, 0.01].map(solidShareMin => ({ solidFrom, solidShareMin })),
);
const UNSURE_SHARES = [0.1, 0.15, 0.2, SUBJECT_RULES.unsureShareMin, 0.3, 0.4, 0.5];
/** A subject's picture that is called empty weighs so much more than an empty one that is not. */
const LOST_WEIGHT = 20;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    plan: { type: 'string', default: 'standard' },
    kinds: { type: 'string', default: 'whole,crop,filled,empty' },
    minutes: { type: 'string', default: 'Infinity' },
  },
});
if (positionals.length === 0) throw new Error('usage: quality-subject.ts [options] FOLDER...');

async function judge(sample: Sample, node: PlanNode): Promise<Judged> {
  const made = await sample.make();
  const { alpha, subject, roles } = await node.cutOut(await encodeSent(made.picture));
  const cells = gatherCells(alpha, made.picture);
  const unsure = unsureOfShown(cells);
  return {
    ...measure(sample, made, alpha, subject),
    empty: SOLID_RULES.map(rules => !hasSolid(cells, rules)),
    unsure: UNSURE_SHARES.map(least => unsure >= least),
    roles,
  };
}

async function judgeAll(): Promise<Judged[]> {
  const node = await openPlanNode(values.plan);
  const all: Judged[] = [];
  const endMs = performance.now() + 60_000 * Number(values.minutes);
  try {
    const kinds = values.kinds.split(',');
    for (const sample of listSamples(positionals).filter(({ kind }) => kinds.includes(kind))) {
      if (performance.now() > endMs) break;
      try {
        all.push(await judge(sample, node));
      } catch (error) {
        // Not every photo has a ground, or a subject, that is large enough.
        if (!(error instanceof NoPieceError)) throw error;
      }
      if (all.length % 50 === 0) console.error(`${all.length} pictures`);
    }
  } finally {
    await node.close();
  }
  return all;
}

function judgeUnsure(seen: readonly Judged[], isUnsure: (one: Judged) => boolean) {
  const ratio = bootstrap(
    seen,
    ({ source }) => source,
    some => {
      const [unsure, sure] = [some.filter(isUnsure), some.filter(one => !isUnsure(one))];
      return mean(unsure, one => one.errors.mse) / mean(sure, one => one.errors.mse);
    },
  );
  const isBad = ({ errors }: Measured) => errors.mse >= BAD_MSE;
  const unsure = new Set<Measured>(seen.filter(isUnsure));
  const is = (one: Measured) => unsure.has(one);
  const numbers = [ratio.value, ratio.low, ratio.high].map(number => number.toFixed(1));
  return {
    mseRatio: `${numbers[0]} (${numbers[1]} to ${numbers[2]})`,
    of: share(seen, is),
    ofWhole: share(
      seen.filter(({ kind }) => kind === 'whole'),
      is,
    ),
    ofBad: share(seen.filter(isBad), is),
    badOfThose: share(seen.filter(isUnsure), isBad),
  };
}

const all = await judgeAll();
const empty = crossValidated(
  all,
  one => one.empty,
  (one, isEmpty) => {
    if (one.kind === 'filled') return 0;
    if (one.kind === 'empty') return Number(!isEmpty);
    return isShown(one) && isEmpty ? LOST_WEIGHT : 0;
  },
);
const emptyByOthers = new Set<Measured>(all.filter(one => empty.get(one)));
const seen = all.filter(({ kind, said }) => ['whole', 'crop'].includes(kind) && said);
const unsure = crossValidated(
  seen,
  one => one.unsure,
  (one, isUnsure) => Number(isUnsure !== one.errors.mse >= BAD_MSE),
);
const ofKinds = (is: (one: Judged) => boolean) =>
  Object.fromEntries(
    [...Map.groupBy(all.filter(is), ({ kind }) => kind)].map(([kind, some]) => [kind, some.length]),
  );
writeResults('quality-subject', {
  pictures: ofKinds(() => true),
  withOpinion: ofKinds(({ roles }) => roles.includes('opinion')),
  withSecondLook: ofKinds(({ roles }) => roles.includes('second_look')),
  lost: ofKinds(({ kind, found }) => kind === 'crop' && found < SHOWN_FROM),
  empty: judgeEmpty(all, ({ said }) => said === undefined),
  emptyLeftOut: judgeEmpty(all, one => emptyByOthers.has(one)),
  unsure: judgeUnsure(seen, ({ said }) => said?.unsure === true),
  unsureLeftOut: judgeUnsure(seen, one => unsure.get(one) === true),
  cutOff: {
    found: share(
      seen.filter(one => one.isCutOff),
      ({ said }) => said?.cutOff === true,
    ),
    wrong: share(
      seen.filter(one => !one.isCutOff),
      ({ said }) => said?.cutOff === true,
    ),
  },
  notFound: all.filter(({ kind, said }) => kind === 'empty' && said).map(({ name }) => name),
  calledEmpty: all
    .filter(one => ['whole', 'crop'].includes(one.kind) && isShown(one) && !one.said)
    .map(({ name }) => name),
});
