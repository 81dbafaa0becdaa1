/**
 * The metrics of one page: gauges are read at a scrape, and the series of counters are there, at 0,
 * from the program's start. Prometheus sees no increase between no series and a series at 1, so an
 * alert that asks for `increase(…) > 0` would miss the first event after every start. A counter is
 * therefore declared with the values of its labels; test/contract/alerts.test.ts holds that for
 * every counter that a rule asks for.
 */

import { Counter, Gauge, Histogram, Registry } from '@prometheus-io/client';
import { settledWithin } from './waiting.ts';

/** Two scrapes within this time share one reading. */
const CACHE_MS = 1000;
/** Scrapers give up after 10 s and then get nothing, just when it matters most. */
const READ_MS_MAX = 2000;

/** A gauge with labels has several. Undefined: not known, and left out. */
export type GaugeValues =
  | number
  | undefined
  | readonly (readonly [number, Readonly<Record<string, string>>])[];

/** Every value of each label. */
type KnownLabels = Readonly<Record<string, readonly string[]>>;

type LabelsOf<Known extends KnownLabels> = { readonly [Name in keyof Known]: Known[Name][number] };

/** Takes no labels but those it was declared with: a value that was forgotten does not compile. */
export interface KnownCounter<Known extends KnownLabels> {
  inc(labels: LabelsOf<Known>, by?: number): void;
}

export class MetricSet {
  readonly registry = new Registry();
  readonly #onUnreadable: (what: string, error: unknown) => void;

  /** @param onUnreadable gets what a scrape could not read; the rest of the page is still served */
  constructor(onUnreadable: (what: string, error: unknown) => void = () => undefined) {
    this.#onUnreadable = onUnreadable;
  }

  /**
   * A counter whose labels also have values that only come up, as the codes of errors.
   * @param begun the combinations that begin at 0: at least those that a rule asks for
   */
  openCounter<Name extends string>(
    name: string,
    help: string,
    labelNames: readonly Name[],
    begun: readonly Readonly<Record<Name, string>>[] = [],
  ): Counter<Name> {
    const registers = [this.registry];
    const counter = new Counter<string>({ name, help, labelNames, registers });
    for (const labels of begun) counter.inc(labels, 0);
    return counter as Counter<Name>;
  }

  /** A counter all of whose labels are known beforehand: each combination begins at 0. */
  counter<const Known extends KnownLabels>(
    name: string,
    help: string,
    known: Known,
  ): KnownCounter<Known> {
    return this.openCounter(name, help, Object.keys(known), everyOf(known));
  }

  /** @returns what counts one */
  counted(name: string, help: string): () => void {
    const counter = this.counter(name, help, {});
    return () => counter.inc({});
  }

  /** @param label the one that it has, with every value @returns what counts one of a value */
  countedBy<const Value extends string>(
    name: string,
    help: string,
    label: Readonly<Record<string, readonly Value[]>>,
  ): (value: Value, by?: number) => void {
    const [labelName = ''] = Object.keys(label);
    const counter = this.counter(name, help, label);
    return (value, by) => counter.inc({ [labelName]: value }, by);
  }

  histogram<L extends string>(
    name: string,
    help: string,
    labelNames: readonly L[],
    buckets: number[],
  ): Histogram<L> {
    const registers = [this.registry];
    return new Histogram({ name, help, labelNames: [...labelNames], buckets, registers });
  }

  gauge(
    name: string,
    help: string,
    read: () => GaugeValues | Promise<GaugeValues>,
    labelNames: readonly string[] = [],
  ): void {
    new Gauge({
      name,
      help,
      labelNames: [...labelNames],
      registers: [this.registry],
      async collect() {
        // A value that cannot be read is left out, rather than shown as it was before.
        if (labelNames.length === 0) this.remove();
        else this.reset();
        const values = await read();
        if (typeof values === 'number') this.set(values);
        else for (const [value, labels] of values ?? []) this.set(labels, value);
      },
    });
  }

  /** Reads once for all gauges that show it; no second reading begins while the first hangs. */
  reading<T>(
    what: string,
    ask: () => Promise<T>,
  ): (pick: (answer: T) => GaugeValues) => () => Promise<GaugeValues> {
    let reading: Reading<T> | undefined;
    return pick => async () => {
      if (reading === undefined || performance.now() >= reading.validUntilMs) {
        reading = begin(ask, error => this.#onUnreadable(what, error));
      }
      let answer: T | undefined;
      const answered = reading.answer.then(found => {
        answer = found;
      });
      await settledWithin(answered, READ_MS_MAX);
      return answer === undefined ? undefined : pick(answer);
    };
  }
}

export function everyOf<const Known extends KnownLabels>(known: Known): LabelsOf<Known>[] {
  let combined: Readonly<Record<string, string>>[] = [{}];
  for (const [name, values] of Object.entries(known)) {
    combined = combined.flatMap(labels => values.map(value => ({ ...labels, [name]: value })));
  }
  return combined as LabelsOf<Known>[];
}

export function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1000;
}

interface Reading<T> {
  readonly answer: Promise<T | undefined>;
  validUntilMs: number;
}

function begin<T>(ask: () => Promise<T>, onFailure: (error: unknown) => void): Reading<T> {
  const answer = ask().catch((error: unknown) => {
    onFailure(error);
    return undefined;
  });
  const reading: Reading<T> = { answer, validUntilMs: Number.POSITIVE_INFINITY };
  const beganMs = performance.now();
  void answer.then(() => {
    reading.validUntilMs = beganMs + CACHE_MS;
  });
  return reading;
}
