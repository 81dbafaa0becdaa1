/**
 * Files in TMPDIR for other codecs' programs, 0.4 GB at 100 MP. The files have no names, and are
 * not pipes because the programs seek.
 */
import { randomUUID } from 'node:crypto';
import { mkdtempDisposableSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { type FileHandle, mkdtempDisposable, open, symlink, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ContractError } from '@matting/proto/contract/errors.ts';

const prefixOf = (pid: number | undefined) => path.join(tmpdir(), `matting-codecs-${pid}-`);

/**
 * The file disappears with its last descriptor.
 * @throws ContractError NODE_INCAPABLE if TMPDIR cannot be used
 */
export async function openNameless(): Promise<FileHandle> {
  const name = `${prefixOf(process.pid)}${randomUUID()}`;
  // Refuses an existing file: it is somebody else's.
  const handle = await open(name, 'wx+', 0o600).catch(throwIncapable);
  await unlink(name);
  return handle;
}

/** Errors that pass by themselves. */
const PASSING = ['ENOSPC', 'EDQUOT', 'EMFILE', 'ENFILE'];

function throwIncapable(cause: NodeJS.ErrnoException): never {
  if (PASSING.includes(cause.code ?? '')) throw cause;
  const detail = 'The temporary folder of this node cannot be used.';
  throw new ContractError('NODE_INCAPABLE', detail, { cause });
}

/** Targets by the names of their links. */
export type Links = Readonly<Record<string, string>>;

/**
 * A program chooses a format by a link's name. The folder is unguessable and lives as long as the
 * run.
 * @throws ContractError NODE_INCAPABLE if TMPDIR cannot be used
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

/** Undefined: TMPDIR can hold these files. */
export function temporaryFailure(): string | undefined {
  try {
    using folder = mkdtempDisposableSync(prefixOf(process.pid));
    symlinkSync('target', path.join(folder.path, 'link'));
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

export function removeLeft(pid: number): void {
  const prefix = path.basename(prefixOf(pid));
  for (const name of readdirSync(tmpdir())) {
    if (name.startsWith(prefix)) rmSync(path.join(tmpdir(), name), { recursive: true });
  }
}
