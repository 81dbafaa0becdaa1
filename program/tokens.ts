/** Tokens in a variable or in followed files: MATTING_NODE_TOKEN* and the form of all tokens. */
import assert from 'node:assert/strict';
import { createHash, timingSafeEqual } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { Unusable } from './config-error.ts';
import type { About, EnvReader } from './env.ts';
import { whyUnreadable } from './files.ts';
import { Followed, type FollowLog } from './followed-files.ts';

/** Short tokens can be guessed, and metadata cannot carry blanks or controls. */
const FORM = /^[\x21-\x7e]{16,256}$/;
export const TOKEN_FORM = '16 to 256 printable ASCII characters without blanks';
/** The old token, the new one, and those of an unfinished change. */
const NODE_TOKENS_MAX = 4;
const FILE_CHARACTERS_MAX = 65_536;

/** `file` undefined: the list comes from a variable and never changes. */
export interface Listed<T> {
  readonly items: readonly T[];
  readonly file: string | undefined;
}

export function parseToken(text: string): string | undefined {
  return FORM.test(text) ? text : undefined;
}

/** Compares digests, whose equal length hides the token's. */
export function isSameToken(given: string, token: string): boolean {
  return timingSafeEqual(digestOf(given), digestOf(token));
}

export function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

interface ListForm<T> {
  /** The variable that names the file: `…_FILE`. */
  readonly variable: string;
  readonly form: string;
  readonly parse: (line: string) => T | undefined;
  /** Separates items of a line. undefined: a line is an item. */
  readonly separator?: string;
  readonly itemsMin: number;
  readonly itemsMax: number;
}

const TOKEN = 'MATTING_NODE_TOKEN';
const NODE_TOKENS: ListForm<string> = {
  variable: 'MATTING_NODE_TOKEN_FILE',
  form: TOKEN_FORM,
  parse: parseToken,
  itemsMin: 1,
  itemsMax: NODE_TOKENS_MAX,
};

/**
 * The program sends the first token and accepts all. Empty: none is set.
 * @param expected follows "must be " if the program needs one
 */
export function readNodeTokens(whole: EnvReader, expected?: string): Listed<string> {
  const reader = whole.section('Basics');
  const own = reader.parsed(TOKEN, TOKEN_FORM, parseToken, {
    about: `The secret that control planes and nodes share. Set the same on all of them, here or in
      \`${NODE_TOKENS.variable}\`. A node that listens beyond loopback without a control plane
      needs it, caller tokens or client certificates. \`make start\` generates one.`,
    required: 'by a control plane, and by a node with `MATTING_REGISTRY_ADDRESS`',
    default: undefined,
  });
  const listed = readListFile(reader, NODE_TOKENS, {
    about: `A file with the node token, in place of \`${TOKEN}\`. It has one token a line: the
      program shows the first and accepts each. It
      [follows the file](operate.md#change-settings-without-a-restart).`,
  });
  if (listed !== undefined) {
    if (reader.has(TOKEN)) reader.problem(TOKEN, `unset where ${NODE_TOKENS.variable} is set`);
    return listed;
  }
  if (expected !== undefined && !hasNodeToken(reader)) reader.problem(TOKEN, expected);
  return { items: own === undefined ? [] : [own], file: undefined };
}

export function hasNodeToken(reader: EnvReader): boolean {
  return reader.has(TOKEN) || reader.has(NODE_TOKENS.variable);
}

/** @throws Error with the variable and the reason, never with content */
export function nodeTokensNow(listed: Listed<string>): Promise<readonly string[]> {
  return listNow(listed, NODE_TOKENS);
}

/** @returns undefined: the variable is not set */
export function readListFile<T>(
  reader: EnvReader,
  list: ListForm<T>,
  about: About,
): Listed<T> | undefined {
  const parse = (file: string): Listed<T> | undefined => {
    let text: string;
    try {
      text = readFileSync(file, 'utf8');
    } catch (error) {
      throw new Unusable(`a file that this program can read (${whyUnreadable(error)})`);
    }
    const items = itemsOf(text, list);
    return items && { items, file };
  };
  const expected = `a readable file of ${formOf(list)}`;
  return reader.parsed(list.variable, expected, parse, { ...about, default: undefined });
}

export async function listNow<T>(
  { items, file }: Listed<T>,
  list: ListForm<T>,
): Promise<readonly T[]> {
  if (file === undefined) return items;
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    const why = whyUnreadable(cause);
    throw new Error(`${list.variable}: the file cannot be read (${why})`, { cause });
  });
  const now = itemsOf(text, list);
  if (now === undefined)
    throw new Error(`${list.variable}: the file is not one of ${formOf(list)}`);
  return now;
}

function formOf({ form, itemsMax }: ListForm<unknown>): string {
  return `at most ${itemsMax} lines, each ${form}`;
}

/**
 * Skips lines that begin with "#". undefined: a wrong list, or an empty file, perhaps half written.
 */
function itemsOf<T>(text: string, list: ListForm<T>): readonly T[] | undefined {
  const { parse, separator, itemsMin, itemsMax } = list;
  if (text.trim() === '' || text.length > FILE_CHARACTERS_MAX) return undefined;
  const lines = text.split('\n').filter(line => !line.trim().startsWith('#'));
  // A comma in a comment does not begin an item.
  const parts = lines.flatMap(line => (separator === undefined ? [line] : line.split(separator)));
  const items = parts.flatMap(part => (part.trim() === '' ? [] : [parse(part.trim())]));
  if (items.length < itemsMin || items.length > itemsMax) return undefined;
  const parsed = items.filter(item => item !== undefined);
  return parsed.length === items.length ? parsed : undefined;
}

export class NodeTokens {
  readonly #followed: Followed<readonly string[]> | undefined;
  #tokens: readonly string[];

  constructor(listed: Listed<string>, log: FollowLog, pollMs?: number) {
    this.#tokens = listed.items;
    if (listed.file === undefined) return;
    this.#followed = new Followed(listed.items, () => nodeTokensNow(listed), {
      what: 'token files',
      ...{ log, pollMs },
      onChange: tokens => {
        this.#tokens = tokens;
        log.info({ nodeTokens: tokens.length }, 'token files changed');
      },
    });
  }

  readonly accepted = (): readonly string[] => this.#tokens;

  readonly shown = (): string => {
    const [token] = this.#tokens;
    assert(token !== undefined, 'a control plane has a node token');
    return token;
  };

  close(): void {
    this.#followed?.close();
  }
}
