/**
 * Counters whose series are there, at 0, from the program's start. Prometheus sees no increase
 * between no series and a series at 1, so an alert that asks for `increase(…) > 0` would miss the
 * first event after every start. A counter is therefore declared with the values of its labels;
 * test/contract/alerts.test.ts holds that for every counter that a rule asks for.
 */
import { Counter, type Registry } from '@prometheus-io/client';

/** Every value of each label. */
export type KnownLabels = Readonly<Record<string, readonly string[]>>;

type LabelsOf<Known extends KnownLabels> = { readonly [Name in keyof Known]: Known[Name][number] };

/** Takes no labels but those it was declared with: a value that was forgotten does not compile. */
export interface KnownCounter<Known extends KnownLabels> {
  inc(labels: LabelsOf<Known>, by?: number): void;
}

interface Declared {
  readonly name: string;
  readonly help: string;
  readonly registry: Registry;
}

/** A counter all of whose labels are known beforehand: each combination begins at 0. */
export function createKnownCounter<const Known extends KnownLabels>(
  declared: Declared,
  known: Known,
): KnownCounter<Known> {
  return createOpenCounter(declared, Object.keys(known), everyOf(known));
}

/**
 * A counter whose labels also have values that only come up, as the codes of errors.
 * @param begun the combinations that begin at 0: at least those that a rule asks for
 */
export function createOpenCounter<Name extends string>(
  { name, help, registry }: Declared,
  labelNames: readonly Name[],
  begun: readonly Readonly<Record<Name, string>>[],
): Counter<Name> {
  const counter = new Counter<string>({ name, help, labelNames, registers: [registry] });
  for (const labels of begun) counter.inc(labels, 0);
  return counter as Counter<Name>;
}

export function everyOf<const Known extends KnownLabels>(known: Known): LabelsOf<Known>[] {
  let combined: Readonly<Record<string, string>>[] = [{}];
  for (const [name, values] of Object.entries(known)) {
    combined = combined.flatMap(labels => values.map(value => ({ ...labels, [name]: value })));
  }
  return combined as LabelsOf<Known>[];
}
