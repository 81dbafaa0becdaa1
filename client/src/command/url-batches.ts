/**
 * Batches of earlier runs in results.jsonl. The command writes a line for each item before it
 * submits a batch, so the next run finds the batch for any list.
 */
import { createHash } from 'node:crypto';
import type { JournalLine } from './journal.ts';
import type { RemoveOptions } from './options.ts';

/** The service's bound. */
export const ITEMS_MAX = 1000;
/**
 * An item's key is its batch's key and its position. From the second attempt on, the batch's key
 * ends with the attempt's number.
 */
const ITEM_KEY = /^(urls-[0-9a-f]{64}(?:-(\d{1,6}))?):(\d{1,3})$/;

export interface UrlBatch {
  /** The Idempotency-Key. */
  readonly key: string;
  /** From 1. An address that failed temporarily gets another key. */
  readonly attempt: number;
  readonly urls: readonly string[];
  readonly lines: readonly (JournalLine | undefined)[];
}

export interface EarlierUrl {
  /** The last batch with this address. */
  readonly batch: UrlBatch;
  /** The line of the item's end. undefined: the batch may have been submitted. */
  readonly end: JournalLine | undefined;
}

type Request = Pick<RemoveOptions, 'fieldsText' | 'run'>;

/** Equal requests have equal keys, whoever submits them. */
export function urlBatch(
  { fieldsText, run }: Request,
  urls: readonly string[],
  attempt = 1,
  lines: UrlBatch['lines'] = [],
): UrlBatch {
  const text = JSON.stringify([fieldsText, run, urls]);
  const key = `urls-${createHash('sha256').update(text).digest('hex')}`;
  return { key: attempt === 1 ? key : `${key}-${attempt}`, attempt, urls, lines };
}

export function slicesOf<T>(all: readonly T[]): T[][] {
  const count = Math.ceil(all.length / ITEMS_MAX);
  return Array.from({ length: count }, (_, index) =>
    all.slice(index * ITEMS_MAX, (index + 1) * ITEMS_MAX),
  );
}

export class EarlierBatches {
  readonly #batches = new Map<string, { attempt: number; lines: (JournalLine | undefined)[] }>();

  add(line: JournalLine): void {
    const [, key, attempt = '1', item] = ITEM_KEY.exec(line.key ?? '') ?? [];
    if (key === undefined) return;
    const batch = this.#batches.get(key) ?? { attempt: Number(attempt), lines: [] };
    this.#batches.set(key, batch);
    // Two runs may have begun an item. The line with its end counts.
    if (isEnd(line) || batch.lines[Number(item)] === undefined) batch.lines[Number(item)] = line;
  }

  /**
   * Batches by address, if they had the same options.
   * @param list an older command made batches of its slices
   */
  earlierUrls(request: Request, list: readonly string[]): Map<string, EarlierUrl> {
    // An older command wrote only ends, so its batches have gaps that the list fills.
    const slices = new Map(slicesOf(list).map(urls => [urlBatch(request, urls).key, urls]));
    const byUrl = new Map<string, EarlierUrl>();
    for (const [key, { attempt, lines }] of this.#batches) {
      const urls = slices.get(key) ?? Array.from(lines, line => line?.file ?? '');
      const batch = urlBatch(request, urls, attempt, lines);
      // The batch had other options, or was never submitted, so its lines are incomplete.
      if (batch.key !== key) continue;
      for (const [item, url] of urls.entries()) {
        const line = lines[item];
        const end = line !== undefined && isEnd(line) ? line : undefined;
        // An address may occur twice in a batch, with one end.
        if (end === undefined && byUrl.get(url)?.batch === batch) continue;
        byUrl.set(url, { batch, end });
      }
    }
    return byUrl;
  }
}

function isEnd({ output, error }: JournalLine): boolean {
  return output !== null || error !== null;
}
