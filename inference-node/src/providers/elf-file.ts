/** What a shared library's dynamic section says, unloaded: ELF of 64 bits, little-endian. */
import { type FileHandle, open } from 'node:fs/promises';

export interface ElfFacts {
  /** e_machine: 62 is x86-64, 183 AArch64. */
  readonly machine: number;
  /** Libraries it is linked with (DT_NEEDED), in order. */
  readonly needed: readonly string[];
}

export const ELF_MACHINES: Readonly<Record<string, number>> = { x64: 62, arm64: 183 };

const HEADER_BYTES = 64;
const MAGIC = 0x464c457f;
const CLASS_64_LITTLE = 0x0102;
const SECTION_DYNAMIC = 6;
const TAG_NEEDED = 1n;
const DYNAMIC_ENTRY_BYTES = 16;
/** Far over those of any library: what is larger is no library. */
const SECTIONS_MAX = 4096;
const TABLE_BYTES_MAX = 16 * 1024 * 1024;

/** Undefined where the file is not such a library, or cut short. */
export async function readElfFacts(file: string): Promise<ElfFacts | undefined> {
  const handle = await open(file, 'r');
  try {
    return await readFacts(handle);
  } finally {
    await handle.close();
  }
}

interface Section {
  readonly type: number;
  readonly offset: number;
  readonly bytes: number;
  /** Index of the section with its names. */
  readonly link: number;
}

async function readFacts(handle: FileHandle): Promise<ElfFacts | undefined> {
  const header = await readAt(handle, 0, HEADER_BYTES);
  if (header === undefined || header.readUInt32LE(0) !== MAGIC) return undefined;
  if (header.readUInt16LE(4) !== CLASS_64_LITTLE) return undefined;
  const machine = header.readUInt16LE(18);
  const [entryBytes, count] = [header.readUInt16LE(58), header.readUInt16LE(60)];
  if (entryBytes < 64 || count > SECTIONS_MAX) return undefined;
  const table = await readAt(handle, Number(header.readBigUInt64LE(40)), entryBytes * count);
  if (table === undefined) return undefined;
  const sections = Array.from({ length: count }, (_, i) => sectionAt(table, i * entryBytes));
  const dynamic = sections.find(({ type }) => type === SECTION_DYNAMIC);
  const names = dynamic && sections[dynamic.link];
  if (dynamic === undefined || names === undefined) return { machine, needed: [] };
  const entries = await readAt(handle, dynamic.offset, dynamic.bytes);
  const strings = await readAt(handle, names.offset, names.bytes);
  if (entries === undefined || strings === undefined) return undefined;
  const needed: string[] = [];
  for (let at = 0; at + DYNAMIC_ENTRY_BYTES <= entries.length; at += DYNAMIC_ENTRY_BYTES) {
    if (entries.readBigUInt64LE(at) !== TAG_NEEDED) continue;
    const start = Number(entries.readBigUInt64LE(at + 8));
    const end = strings.indexOf(0, start);
    if (start >= strings.length || end === -1) return undefined;
    needed.push(strings.toString('latin1', start, end));
  }
  return { machine, needed };
}

function sectionAt(table: Buffer, at: number): Section {
  return {
    type: table.readUInt32LE(at + 4),
    offset: Number(table.readBigUInt64LE(at + 24)),
    bytes: Number(table.readBigUInt64LE(at + 32)),
    link: table.readUInt32LE(at + 40),
  };
}

/** Undefined where the file ends before, or more is asked for than any library has. */
async function readAt(handle: FileHandle, at: number, bytes: number): Promise<Buffer | undefined> {
  if (!(at >= 0) || bytes > TABLE_BYTES_MAX || !Number.isSafeInteger(at)) return undefined;
  const buffer = Buffer.alloc(bytes);
  const { bytesRead } = await handle.read(buffer, 0, bytes, at);
  return bytesRead === bytes ? buffer : undefined;
}
