/**
 * Files of other codecs' programs, in TMPDIR: without a name, since the programs seek, and links
 * for programs that choose a format by a name. At 100 MP they take 0.4 GB, of which nothing is
 * left.
 */
import { randomUUID } from 'node:crypto';
import { mkdtempDisposableSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { type FileHandle, mkdtempDisposable, open, symlink, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ContractError } from '@matting/proto/contract/errors.ts';

/** Begins the names of what a process has in TMPDIR. */
const prefixOf = (pid: number | undefined) => path.join(tmpdir(), `matting-codecs-${pid}-`);

/**
 * Opens a file that disappears with its last descriptor.
 * @throws ContractError NODE_INCAPABLE where TMPDIR cannot be used
 */
export async function openNameless(): Promise<FileHandle> {
  const name = `${prefixOf(process.pid)}${randomUUID()}`;
  // Exclusive, and a name that nobody knows before: a file that is already there is not ours.
  const handle = await open(name, 'wx+', 0o600).catch(throwIncapable);
  await unlink(name);
  return handle;
}

/** A full disk passes; nothing else that keeps a file from being made does by itself. */
const PASSING = ['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE'];

function throwIncapable(cause: NodeJS.ErrnoException): never {
  if (PASSING.includes(cause.code ?? '')) throw cause;
  const detail = 'The temporary folder of this node cannot be used.';
  throw new ContractError('NODE_INCAPABLE', detail, { cause });
}

/** The key is the name of a link, the value what it leads to. */
export type Links = Readonly<Record<string, string>>;

/**
 * Names for a program that chooses a format by them; what is written there is in their targets.
 * They are in a folder of this run alone, whose name nobody knows before, and go with it.
 * @throws ContractError NODE_INCAPABLE where TMPDIR cannot be used
 */
export async function withLinks<Result>(
  links: Links,
  use: (folder: string) => Promise<Result>,
): Promise<Result> {
  await using folder = await mkdtempDisposable(prefixOf(process.pid)).catch(throwIncapable);
  for (const [name, target] of Object.entries(links)) {
    await symlink(target, path.join(folder.path, name));
  }
  return await use(folder.path);
}

/** Explains why programs cannot get files here; undefined: they can. */
export function temporaryFailure(): string | undefined {
  try {
    using folder = mkdtempDisposableSync(prefixOf(process.pid));
    symlinkSync('target', path.join(folder.path, 'link'));
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/**
 * Removes what a killed process left: folders with links.
 * @throws the system's error
 */
export function removeLeft(pid: number): void {
  const prefix = path.basename(prefixOf(pid));
  for (const name of readdirSync(tmpdir())) {
    if (name.startsWith(prefix)) rmSync(path.join(tmpdir(), name), { recursive: true });
  }
}
