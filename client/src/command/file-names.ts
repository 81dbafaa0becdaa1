/**
 * File names as text. Bytes that are not UTF-8 become lone surrogates, U+DC80 to U+DCFF, so that
 * names stay distinct.
 */
import type { Dirent } from 'node:fs';
import { lstat, readdir, readFile, realpath } from 'node:fs/promises';
import path from 'node:path';

/** Runtimes put this in place of undecodable bytes, so the text is not the real name. */
const REPLACEMENT = '\ufffd';
const HALVES = /[\udc80-\udcff]/gu;
const SEQUENCES = /[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}|./gs;

function textOf(bytes: Uint8Array): string {
  const text = Buffer.from(bytes).toString();
  if (!text.includes(REPLACEMENT)) return text;
  return Buffer.from(bytes)
    .toString('latin1')
    .replace(SEQUENCES, sequence => {
      const part = Buffer.from(sequence, 'latin1');
      const read = part.toString();
      if (Buffer.from(read).equals(part)) return read;
      return Array.from(part, byte => String.fromCharCode(0xdc00 + byte)).join('');
    });
}

/** The name for system calls. */
export function onDisk(text: string): string | Buffer {
  if (text.search(HALVES) < 0) return text;
  const parts = text.split(/([\udc80-\udcff])/u).map((part, index) => {
    return index % 2 === 0 ? Buffer.from(part) : Buffer.of(part.charCodeAt(0) & 0xff);
  });
  return Buffer.concat(parts);
}

/** A readable name that every disk accepts, such as `caf%E9.jpg`. */
export function withoutBytes(text: string): string {
  return text.replace(HALVES, half => `%${(half.charCodeAt(0) & 0xff).toString(16).toUpperCase()}`);
}

export async function realPath(text: string): Promise<string> {
  return textOf(await realpath(onDisk(text), { encoding: 'buffer' }));
}

/**
 * Joins names with undecodable bytes by hand, since `path.join` of some runtimes loses the bytes.
 */
export function below(folder: string, name: string): string {
  const both = `${folder}/${name}`;
  return both.search(HALVES) < 0 ? path.join(folder, name) : both;
}

type Entry = Pick<Dirent, 'name' | 'isDirectory' | 'isFile' | 'isSymbolicLink'>;

export async function entriesOf(folder: string): Promise<Entry[]> {
  const entries = await readdir(onDisk(folder), { withFileTypes: true });
  if (!entries.some(({ name }) => name.includes(REPLACEMENT))) return entries;
  const names = await readdir(onDisk(folder), { encoding: 'buffer' });
  return Promise.all(
    names.map(async bytes => {
      const name = textOf(bytes);
      // Treats an unknown entry as a file, which is reported if it cannot be read.
      const found = await lstat(onDisk(below(folder, name))).catch(() => undefined);
      return {
        name,
        isDirectory: () => found?.isDirectory() ?? false,
        isFile: () => found?.isFile() ?? true,
        isSymbolicLink: () => found?.isSymbolicLink() ?? false,
      };
    }),
  );
}

/** Restores bytes of arguments that the runtime could not decode. Only Linux still has them. */
export async function withTheirBytes(args: readonly string[]): Promise<string[]> {
  if (!args.some(arg => arg.includes(REPLACEMENT))) return [...args];
  const raw = await readFile('/proc/self/cmdline', 'latin1').catch(() => '');
  const given = raw.split('\0').map(one => Buffer.from(one, 'latin1'));
  return args.map(arg => {
    const [bytes] = given.splice(given.findIndex(one => one.toString() === arg) >>> 0, 1);
    return bytes === undefined ? arg : textOf(bytes);
  });
}

/** @returns the same text for names that some disk may treat as one */
export function foldedName(text: string): string {
  const plain = text.normalize('NFKD').replace(/[\p{M}\p{Cf}]/gu, '');
  return plain
    .toLowerCase()
    .toUpperCase()
    .replace(/[. ]+(?=\/|$)/g, '');
}
