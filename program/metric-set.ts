/**
 * The metrics of one page. Gauges are read at a scrape. Counters declare all values of their labels
 * and begin at 0: Prometheus sees no increase from a missing series to 1, so an alert on
 * `increase(…) > 0` would miss the first event after a start (test/contract/alerts.test.ts).
 */

import { Counter, Gauge, Histogram, Registry } from '@prometheus-io/client';
import { settledWithin } from './waiting.ts';

/** Two scrapes within this time share a reading. */
const CACHE_MS = 1000;
/** Scrapers give up after 10 s and would get nothing. */
const READ_MS_MAX = 2000;

/** undefined: the value is unknown, so the page omits it. */
export type GaugeValues =
  | number
  | undefined
  | readonly (readonly [number, Readonly<Record<string, string>>])[];

type KnownLabels = Readonly<Record<string, readonly string[]>>;

type LabelsOf<Known extends KnownLabels> = { readonly [Name in keyof Known]: Known[Name][number] };

/** Takes only the declared labels, so a forgotten value does not compile. */
export interface KnownCounter<Known extends KnownLabels> {
  inc(labels: LabelsOf<Known>, by?: number): void;
}

export class MetricSet {
  readonly registry = new Registry();
  readonly #onUnreadable: (what: string, error: unknown) => void;

  /** @param onUnreadable called if a gauge fails; the page has the rest */
  constructor(onUnreadable: (what: string, error: unknown) => void = () => undefined) {
    this.#onUnreadable = onUnreadable;
  }

  /**
   * A counter with a label whose values are not all known, such as error codes.
   * @param begun combinations that begin at 0: at least those in alert rules
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

  counter<const Known extends KnownLabels>(
    name: string,
    help: string,
    known: Known,
  ): KnownCounter<Known> {
    return this.openCounter(name, help, Object.keys(known), everyOf(known));
  }

  /** @returns a function that increments the counter */
  counted(name: string, help: string): () => void {
    const counter = this.counter(name, help, {});
    return () => counter.inc({});
  }

  /** @param label its name and all values @returns a function that increments a value's series */
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
        // The page omits an unreadable value instead of repeating the old one.
        if (labelNames.length === 0) this.remove();
        else this.reset();
        const values = await read();
        if (typeof values === 'number') this.set(values);
        else for (const [value, labels] of values ?? []) this.set(labels, value);
      },
    });
  }

  /** One reading serves all its gauges. While a reading hangs, no other begins. */
  reading<T>(
    what: string,
    read: () => Promise<T>,
  ): (pick: (answer: T) => GaugeValues) => () => Promise<GaugeValues> {
    let reading: Reading<T> | undefined;
    return pick => async () => {
      if (reading === undefined || performance.now() >= reading.validUntilMs) {
        reading = begin(read, error => this.#onUnreadable(what, error));
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

function begin<T>(read: () => Promise<T>, onFailure: (error: unknown) => void): Reading<T> {
  const answer = read().catch((error: unknown) => {
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
