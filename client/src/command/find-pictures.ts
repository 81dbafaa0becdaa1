/** Finds the pictures and plans their results, before any picture is sent. */
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { CommandError, misuse, NO_INPUT_EXIT_CODE } from './command-error.ts';
import {
  below,
  entriesOf,
  foldedName,
  onDisk,
  realPath,
  withoutBytes,
  withTheirBytes,
} from './file-names.ts';
import { findCollision, isSameFile } from './result-names.ts';

/** The endings of pictures within folders. A file given by name may have any ending. */
const PICTURE_ENDINGS = ['.jpg', '.jpeg', '.png', '.webp', '.avif', '.jxl', '.heic', '.heif'];
/** A NAS, a Mac or Windows fills these folders with thumbnails and deleted files. */
const SKIPPED_FOLDERS = ['@eadir', '__macosx', '@recycle', '#recycle', '$recycle.bin'];
/** The names of all pictures are kept in memory. */
const PICTURES_MAX = 1_000_000;
/** The most names that a message shows. */
const NAMES_SHOWN_MAX = 5;

export interface Picture {
  /** The argument with the path below it. Open it with `onDisk`, print it with `shown`. */
  readonly source: string;
  /** Relative to the results' folder, with forward slashes. */
  readonly output: string;
}

export interface Found {
  readonly pictures: readonly Picture[];
  readonly unreadable: readonly { readonly source: string; readonly reason: string }[];
  /** Other files in the folders; the first few are named. */
  readonly others: { readonly count: number; readonly first: readonly string[] };
}

export interface FindOptions {
  /** The folder for the results. It exists, and is not searched for pictures. */
  readonly to: string;
  readonly recursive: boolean;
  readonly fullNames: boolean;
  /** The ending of results, without a dot. */
  readonly ending: string;
}

/**
 * Follows links to files. Follows links to folders only if given by name, so there are no loops.
 * @throws CommandError: a missing file, or two results with the same name
 */
export async function findPictures(files: readonly string[], options: FindOptions): Promise<Found> {
  const search = new Search(options, await realPath(options.to));
  for (const file of await withTheirBytes(files)) await search.add(file);
  await search.requireDistinct();
  await search.requireApart();
  return search;
}

class Search implements Found {
  readonly pictures: Picture[] = [];
  readonly unreadable: { source: string; reason: string }[] = [];
  readonly others = { count: 0, first: [] as string[] };
  readonly #options: FindOptions;
  readonly #to: string;
  /** The first picture of each folded output. */
  readonly #first = new Map<string, Picture>();
  /** Pictures with equal folded outputs. */
  readonly #alike = new Map<string, Picture[]>();

  constructor(options: FindOptions, to: string) {
    this.#options = options;
    this.#to = to;
  }

  async add(file: string): Promise<void> {
    const found = await stat(onDisk(file)).catch((error: NodeJS.ErrnoException) => {
      throw new CommandError(`${file}: ${reasonOf(error)}`, NO_INPUT_EXIT_CODE);
    });
    if (!found.isDirectory()) {
      this.#take(file, this.#named(path.basename(withoutBytes(file))));
      return;
    }
    if (await isSameFile(file, this.#to)) {
      throw misuse(`${file} is also the folder for the results; use another folder for --to`);
    }
    // A folder keeps its name; `folder/.` means only its content, as in cp.
    const name = /(^|\/)\.\.?\/*$/.test(file)
      ? ''
      : path.basename(path.resolve(withoutBytes(file)));
    await this.#walk(file, name);
  }

  async #walk(folder: string, output: string): Promise<void> {
    const entries = await entriesOf(folder).catch((error: NodeJS.ErrnoException) => {
      this.unreadable.push({ source: folder, reason: reasonOf(error) });
      return [];
    });
    entries.sort((a, b) => (a.name < b.name ? -1 : 1));
    for (const entry of entries) {
      // Also skips `._photo.jpg` of macOS.
      if (entry.name.startsWith('.')) continue;
      const source = below(folder, entry.name);
      const name = withoutBytes(entry.name);
      if (entry.isDirectory()) {
        if (!this.#options.recursive || (await isSameFile(source, this.#to))) continue;
        if (SKIPPED_FOLDERS.includes(entry.name.toLowerCase())) this.#skip(source);
        else await this.#walk(source, path.posix.join(output, name));
      } else if (!PICTURE_ENDINGS.includes(path.extname(name).toLowerCase())) {
        this.#skip(source);
      } else if (entry.isFile() || (entry.isSymbolicLink() && (await leadsToFile(source)))) {
        this.#take(source, path.posix.join(output, this.#named(name)));
      }
    }
  }

  #skip(source: string): void {
    this.others.count += 1;
    if (this.others.count <= NAMES_SHOWN_MAX) this.others.first.push(source);
  }

  #named(name: string): string {
    const stem = this.#options.fullNames ? name : path.parse(name).name;
    return `${stem}.${this.#options.ending}`;
  }

  #take(source: string, output: string): void {
    const folded = foldedName(output);
    const first = this.#first.get(folded);
    const alike = this.#alike.get(folded) ?? (first === undefined ? [] : [first]);
    const same = alike.find(other => other.output === output);
    if (same !== undefined && path.resolve(same.source) === path.resolve(source)) return;
    const picture = { source, output };
    if (same !== undefined) throw this.#collision(same, picture);
    if (this.pictures.length >= PICTURES_MAX) {
      throw misuse(`more than ${PICTURES_MAX} pictures; name fewer folders in each run`);
    }
    if (first === undefined) this.#first.set(folded, picture);
    else this.#alike.set(folded, [...alike, picture]);
    this.pictures.push(picture);
  }

  #collision(one: Picture, other: Picture): CommandError {
    const [name, otherName] = [one, other].map(({ source }) => foldedName(path.basename(source)));
    const remedy =
      this.#options.fullNames || name === otherName
        ? 'rename one, or name their folders instead, which keeps them apart'
        : 'use --full-names, or name their folders instead';
    const both = `${one.source} and ${other.source} would both become ${one.output}`;
    return misuse(`${both}; ${remedy}`);
  }

  /** Tests on the results' disk which names are equal. */
  async requireDistinct(): Promise<void> {
    const found = await findCollision(this.#to, [...this.#alike.values()]);
    if (found !== undefined) throw this.#collision(...found);
  }

  /** No result may overwrite a source picture. */
  async requireApart(): Promise<void> {
    const sources = new Map<string, string>();
    for (const { source } of this.pictures) {
      // Only files given by name, or reached by links, can be in the results' folder.
      const realSource = await realPath(source).catch(() => '');
      if (this.#isBelow(realSource)) sources.set(foldedName(realSource), source);
    }
    if (sources.size === 0) return;
    const overwritten: string[] = [];
    for (const { output } of this.pictures) {
      const target = path.join(this.#to, output);
      const source = sources.get(foldedName(await realPath(target).catch(() => '')));
      if (source !== undefined && (await isSameFile(source, target))) overwritten.push(source);
    }
    if (overwritten.length === 0) return;
    const named = overwritten.slice(0, NAMES_SHOWN_MAX).join(', ');
    throw misuse(
      `the results would overwrite their pictures; use another folder for --to: ${named}`,
    );
  }

  #isBelow(file: string): boolean {
    return foldedName(file).startsWith(foldedName(`${this.#to}${path.sep}`));
  }
}

async function leadsToFile(link: string): Promise<boolean> {
  // A broken link is reported when the picture is read.
  return stat(onDisk(link)).then(
    found => found.isFile(),
    () => true,
  );
}

export function reasonOf(error: NodeJS.ErrnoException): string {
  if (error.code === 'ENOENT') return 'no such file';
  if (error.code === 'EACCES' || error.code === 'EPERM') return 'permission denied';
  return error.message;
}
