/**
 * The batches of earlier runs, from results.jsonl. Before the command submits a batch, it writes a
 * line for each item, without output and error. So the next run finds the batch, even if the list
 * changed.
 */
import { createHash } from 'node:crypto';
import type { JournalLine } from './journal.ts';
import type { RemoveOptions } from './options.ts';

/** The service's bound on a batch. */
export const ITEMS_MAX = 1000;
/**
 * The key of an item: the batch's key and the item's number. The batch's key ends in the number of
 * the attempt, from the second on.
 */
const ITEM_KEY = /^(urls-[0-9a-f]{64}(?:-(\d{1,6}))?):(\d{1,3})$/;

export interface UrlBatch {
  /** The Idempotency-Key. */
  readonly key: string;
  /** From 1. An address that failed with `retryable` gets a new attempt, and so another key. */
  readonly attempt: number;
  readonly urls: readonly string[];
  /** Lines of some of the items. */
  readonly lines: readonly (JournalLine | undefined)[];
}

export interface KnownUrl {
  /** The latest batch with this address. */
  readonly batch: UrlBatch;
  /** Undefined: the batch may have been submitted, and the result is unknown. */
  readonly end: JournalLine | undefined;
}

type Request = Pick<RemoveOptions, 'asked' | 'run'>;

/** The key is a hash of the request: equal requests are the same batch, whoever submits them. */
export function urlBatch(
  { asked, run }: Request,
  urls: readonly string[],
  attempt = 1,
  lines: UrlBatch['lines'] = [],
): UrlBatch {
  const text = JSON.stringify([asked, run, urls]);
  const key = `urls-${createHash('sha256').update(text).digest('hex')}`;
  return { key: attempt === 1 ? key : `${key}-${attempt}`, attempt, urls, lines };
}

export function slicesOf<T>(all: readonly T[]): T[][] {
  const count = Math.ceil(all.length / ITEMS_MAX);
  return Array.from({ length: count }, (_, index) =>
    all.slice(index * ITEMS_MAX, (index + 1) * ITEMS_MAX),
  );
}

export class NotedBatches {
  readonly #batches = new Map<string, { attempt: number; lines: (JournalLine | undefined)[] }>();

  add(line: JournalLine): void {
    const [, key, attempt = '1', item] = ITEM_KEY.exec(line.key ?? '') ?? [];
    if (key === undefined) return;
    const batch = this.#batches.get(key) ?? { attempt: Number(attempt), lines: [] };
    this.#batches.set(key, batch);
    // Two runs may have begun an item; the line with its end counts.
    if (isEnd(line) || batch.lines[Number(item)] === undefined) batch.lines[Number(item)] = line;
  }

  /**
   * Known items by address, if they had the same options.
   * @param list its slices were whole batches of an older version of the command
   */
  knownOf(request: Request, list: readonly string[]): Map<string, KnownUrl> {
    // An older version wrote only the lines with an end. The list fills the gaps of its batches.
    const slices = new Map(slicesOf(list).map(urls => [urlBatch(request, urls).key, urls]));
    const known = new Map<string, KnownUrl>();
    for (const [key, { attempt, lines }] of this.#batches) {
      const urls = slices.get(key) ?? Array.from(lines, line => line?.file ?? '');
      const batch = urlBatch(request, urls, attempt, lines);
      // A batch with other options, or one that was never submitted: its lines are not complete.
      if (batch.key !== key) continue;
      for (const [item, url] of urls.entries()) {
        const line = lines[item];
        const end = line !== undefined && isEnd(line) ? line : undefined;
        // A batch may have an address twice, but only one of the items has an end.
        if (end === undefined && known.get(url)?.batch === batch) continue;
        known.set(url, { batch, end });
      }
    }
    return known;
  }
}

function isEnd({ output, error }: JournalLine): boolean {
  return output !== null || error !== null;
}
