import { readFile } from 'node:fs/promises';
import { CommandError, misuse, NO_INPUT_EXIT_CODE } from './command-error.ts';

const URLS_MAX = 1_000_000;

export interface UrlList {
  /** In order, with duplicates. */
  readonly urls: readonly string[];
  /** The first line of each address, from 1. */
  readonly lines: ReadonlyMap<string, number>;
}

/** Skips blank lines and those beginning with #. @throws CommandError */
export async function readUrls(list: string): Promise<UrlList> {
  const text = await readFile(list, 'utf8').catch((error: Error) => {
    throw new CommandError(`cannot read the list: ${error.message}`, NO_INPUT_EXIT_CODE);
  });
  const urls: string[] = [];
  const lines = new Map<string, number>();
  for (const [index, line] of text.split('\n').entries()) {
    const url = line.trim();
    if (url === '' || url.startsWith('#')) continue;
    if (!isAddress(url)) throw misuse(`${list}:${index + 1}: ${url} is no http or https address`);
    urls.push(url);
    if (!lines.has(url)) lines.set(url, index + 1);
  }
  if (urls.length === 0) throw misuse(`${list} lists no address; write one on each line`);
  if (urls.length <= URLS_MAX) return { urls, lines };
  throw misuse(`${list} lists more than ${URLS_MAX} addresses; split it`);
}

function isAddress(text: string): boolean {
  try {
    return /^https?:$/.test(new URL(text).protocol);
  } catch {
    return false;
  }
}
