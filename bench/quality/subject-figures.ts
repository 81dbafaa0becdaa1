/** How wrong results are, and what a node says about their subjects, with and without a subject. */
import { findSubject } from '../../inference-node/serving/picture/finishing/subject.ts';
import { at } from '../../test/support/at.ts';
import { leaveOneOut } from './cross-validation.ts';
import { measureHoles } from './holes.ts';
import { bootstrap, mean } from './intervals.ts';
import { measureQuickly } from './matte-metrics.ts';
import type { Photo } from './photos.ts';
import type { Sample, SampleKind } from './subject-samples.ts';

/** A node reports this about a picture's subject; undefined if it sees none. */
export type Said = { readonly unsure: boolean; readonly cutOff: boolean } | undefined;

export interface Measured {
  readonly name: string;
  readonly source: string;
  readonly kind: SampleKind;
  readonly errors: ReturnType<typeof measureQuickly> & ReturnType<typeof measureHoles>;
  /** The share of the true subject's alpha that the result has. */
  readonly found: number;
  /** Whether the edges of the picture cut off the reference's subject. */
  readonly isCutOff: boolean;
  readonly said: Said;
}

/** A result that has less of its subject has lost it, whatever the node says. */
export const SHOWN_FROM = 0.25;

export function measure(
  { name, source, kind }: Sample,
  { picture, alpha: truth }: Pick<Photo, 'picture' | 'alpha'>,
  matte: Uint8Array,
  said: Said,
): Measured {
  const { width, height } = picture;
  let [both, all] = [0, 0];
  for (let i = 0; i < matte.length; i++) {
    both += Math.min(at(matte, i), at(truth, i));
    all += at(truth, i);
  }
  const [own, reference] = [matte, truth].map(data => ({ data, width, height }));
  if (own === undefined || reference === undefined) throw new Error('no planes');
  return {
    ...{ name, source, kind, said },
    errors: { ...measureQuickly(own, reference), ...measureHoles(own, reference) },
    found: all === 0 ? 0 : both / all,
    isCutOff: findSubject(truth, picture)?.cutOff === true,
  };
}

export const isShown = (one: Measured) => one.kind === 'whole' || one.found >= SHOWN_FROM;

/** Judges each picture by the rule that has the least loss on all other sources. */
export function crossValidated<One extends { readonly source: string }>(
  all: readonly One[],
  verdictsOf: (one: One) => readonly boolean[],
  loss: (one: One, verdict: boolean) => number,
): Map<One, boolean> {
  const rules = all[0] === undefined ? [] : verdictsOf(all[0]);
  const losses = rules.map((_none, rule) => all.map(one => loss(one, at(verdictsOf(one), rule))));
  const folds = leaveOneOut(
    all.map(({ source }) => source),
    losses,
  );
  const chosen = new Map(folds.map(({ group, chosen: rule }) => [group, rule]));
  return new Map(all.map(one => [one, at(verdictsOf(one), chosen.get(one.source) ?? 0)]));
}

export function share(all: readonly Measured[], is: (one: Measured) => boolean): string {
  const { value, low, high } = bootstrap(
    all,
    ({ source }) => source,
    some => mean(some, one => Number(is(one))),
  );
  const percent = (number: number) => (100 * number).toFixed(1);
  return `${percent(value)} % (${percent(low)} to ${percent(high)}) of ${all.length}`;
}

export function judgeEmpty(all: readonly Measured[], isEmpty: (one: Measured) => boolean) {
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
