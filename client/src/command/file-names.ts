/**
 * Names of files as texts. A byte that is not UTF-8 becomes half of a surrogate pair, U+DC80 to
 * U+DCFF, so that no name is lost and no two names become one.
 */
import type { Dirent } from 'node:fs';
import { lstat, readdir, readFile, realpath } from 'node:fs/promises';
import path from 'node:path';

/** If a runtime put this in place of bytes, the text is not the name on the disk. */
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

/** Returns the name in the form that the file system takes. */
export function onDisk(text: string): string | Buffer {
  if (text.search(HALVES) < 0) return text;
  const parts = text.split(/([\udc80-\udcff])/u).map((part, index) => {
    return index % 2 === 0 ? Buffer.from(part) : Buffer.of(part.charCodeAt(0) & 0xff);
  });
  return Buffer.concat(parts);
}

/** A name that every disk takes, and people can read: `caf%E9.jpg`. */
export function withoutBytes(text: string): string {
  return text.replace(HALVES, half => `%${(half.charCodeAt(0) & 0xff).toString(16).toUpperCase()}`);
}

export async function realPath(text: string): Promise<string> {
  return textOf(await realpath(onDisk(text), { encoding: 'buffer' }));
}

/** Not every runtime's `path.join` keeps the bytes. */
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
      // An unknown entry counts as a file: if it cannot be read, the command names it.
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

/** Finds the bytes of arguments that the runtime could not decode. Only Linux still has them. */
export async function withTheirBytes(args: readonly string[]): Promise<string[]> {
  if (!args.some(arg => arg.includes(REPLACEMENT))) return [...args];
  const raw = await readFile('/proc/self/cmdline', 'latin1').catch(() => '');
  const given = raw.split('\0').map(one => Buffer.from(one, 'latin1'));
  return args.map(arg => {
    const [bytes] = given.splice(given.findIndex(one => one.toString() === arg) >>> 0, 1);
    return bytes === undefined ? arg : textOf(bytes);
  });
}

/** Names that some disk treats as equal have the same folded name. Other names may share it too. */
export function foldedName(text: string): string {
  const plain = text.normalize('NFKD').replace(/[\p{M}\p{Cf}]/gu, '');
  return plain
    .toLowerCase()
    .toUpperCase()
    .replace(/[. ]+(?=\/|$)/g, '');
}
