import { SELECTABLE_NAME, SELECTABLES_MAX } from '@matting/proto/contract/selectable-names.ts';
import {
  SelectableKind,
  type SelectableModel,
} from '@matting/proto/gen/matting/v1/matte_service.ts';

export interface UseTerms {
  /** yes, no, unclear */
  readonly commercialUse: string;
  readonly reason: string;
  readonly source: string;
}

export interface Selectable {
  readonly name: string;
  readonly kind: 'plan' | 'model';
  /** Calls without a name get this plan. False only on nodes of 0.3.0. */
  readonly isDefault: boolean;
  /** Hexadecimal, over everything that determines its mattes. */
  readonly sha256: string;
  readonly goodFor: string;
  readonly weights: UseTerms;
  readonly trainingData: UseTerms;
}

/** By name. */
export type Selectables = ReadonlyMap<string, Selectable>;

export const NO_SELECTABLES: Selectables = new Map();

const UNKNOWN_TERMS = { commercialUse: 'unclear', reason: '', source: '' };
const KINDS = new Map([
  [SelectableKind.SELECTABLE_KIND_PLAN, 'plan'],
  [SelectableKind.SELECTABLE_KIND_MODEL, 'model'],
] as const);

export function selectablesFromProto(reported: readonly SelectableModel[]): Selectables {
  const known = reported.flatMap(one => {
    const kind = KINDS.get(one.kind as SelectableKind.SELECTABLE_KIND_PLAN);
    if (kind === undefined || !SELECTABLE_NAME.test(one.name) || one.sha256 === '') return [];
    const { name, default: isDefault, sha256, goodFor } = one;
    const terms = {
      weights: one.weights ?? UNKNOWN_TERMS,
      trainingData: one.trainingData ?? UNKNOWN_TERMS,
    };
    return [[name, { name, kind, isDefault, sha256, goodFor, ...terms }]];
  });
  return new Map(known.slice(0, SELECTABLES_MAX) as [string, Selectable][]);
}

export type NamedSum = Pick<Selectable, 'name' | 'kind' | 'sha256'>;

interface Voter {
  readonly models: { values(): Iterable<Pick<NamedSum, 'name' | 'sha256'>> };
  readonly registeredAtMs: number;
}

interface Vote {
  readonly about: string;
  readonly choice: string;
  readonly atMs: number;
}

function elect(votes: readonly Vote[]): ReadonlyMap<string, string> {
  const choices = Map.groupBy(votes, ({ about, choice }) => `${about} ${choice}`);
  const elected = new Map<string, Vote & { readonly votes: number }>();
  for (const same of choices.values()) {
    const [first] = same.toSorted((a, b) => a.atMs - b.atMs);
    if (first === undefined) continue;
    const before = elected.get(first.about);
    const more = same.length - (before?.votes ?? 0) || (before?.atMs ?? 0) - first.atMs;
    if (more > 0) elected.set(first.about, { ...first, votes: same.length });
  }
  return new Map([...elected].map(([about, { choice }]) => [about, choice]));
}

/** Elects a checksum for each name: that of most nodes, in a tie that of the first to register. */
export function standingSums(nodes: readonly Voter[]): ReadonlyMap<string, string> {
  return elect(
    nodes.flatMap(({ models, registeredAtMs: atMs }) =>
      [...models.values()].map(({ name, sha256 }) => ({ about: name, choice: sha256, atMs })),
    ),
  );
}

export function ofStandingSum(
  models: Selectables,
  standing: ReadonlyMap<string, string>,
): Selectables {
  const stands = [...models].filter(([name, { sha256 }]) => standing.get(name) === sha256);
  return stands.length === models.size ? models : new Map(stands);
}

/** Elects the default plan, of requests without a name. undefined: no node reports one. */
export function commonDefault(
  nodes: readonly { readonly models: Selectables; readonly registeredAtMs: number }[],
): string | undefined {
  const votes = nodes.flatMap(({ models, registeredAtMs: atMs }) => {
    const own = [...models.values()].find(({ isDefault }) => isDefault);
    return own === undefined ? [] : [{ about: 'default', choice: own.name, atMs }];
  });
  return elect(votes).get('default');
}
