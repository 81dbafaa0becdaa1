/**
 * The one file of results, whole after every row: what ends the program in the middle loses
 * nothing. A later call on the same machine adds its sections to those that are there.
 */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { machine } from '../service.ts';
import type { Row } from './table.ts';

export const SECTIONS = ['bare', 'parity', 'service', 'faults', 'steady', 'goals'] as const;
export type SectionName = (typeof SECTIONS)[number];

export interface SectionResult {
  readonly measuredAt: string;
  readonly seconds: number;
  /** What the figures are of: settings, the GPU, the plan as the node says it. */
  readonly facts: Readonly<Record<string, unknown>>;
  readonly rows: readonly Row[];
  /** Names of rows that were not measured, for want of time. */
  readonly leftOut: readonly string[];
  /** Why the section ended early, in one line. */
  readonly failed?: string;
}

export interface CardResults {
  readonly machine: Readonly<Record<string, string | number>>;
  readonly sections: Readonly<Partial<Record<SectionName, SectionResult>>>;
}

export class CardFile {
  readonly path: string;
  #results: CardResults;

  /** @param device what else the machine is told apart by: its GPU and driver. */
  constructor(file: string, device: Readonly<Record<string, string>>) {
    this.path = path.resolve(file);
    const own = { ...machine(), ...device };
    const there = readResults(this.path);
    const same = JSON.stringify(there?.machine) === JSON.stringify(own);
    this.#results = there !== undefined && same ? there : { machine: own, sections: {} };
  }

  get results(): CardResults {
    return this.#results;
  }

  /** Replaces what the section had. */
  write(name: SectionName, section: SectionResult): void {
    const { machine, sections } = this.#results;
    this.#results = { machine, sections: { ...sections, [name]: section } };
    mkdirSync(path.dirname(this.path), { recursive: true });
    // Renamed, so that a reader never sees half of it.
    const partial = `${this.path}.${process.pid}.part`;
    writeFileSync(partial, `${JSON.stringify(this.#results, undefined, 2)}\n`);
    renameSync(partial, this.path);
  }
}

/** Undefined where there is none that can be read. */
function readResults(file: string): CardResults | undefined {
  if (!existsSync(file)) return undefined;
  try {
    const found = JSON.parse(readFileSync(file, 'utf8')) as Partial<CardResults>;
    const { machine: of, sections } = found;
    return of === undefined || sections === undefined ? undefined : { machine: of, sections };
  } catch {
    return undefined;
  }
}
