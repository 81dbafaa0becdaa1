/**
 * All that a request may name on this node: the own plan, whose engines stay, and every other plan
 * and model that is there, whose engines are loaded when an image first wants them, shared between
 * those that have the same model, and unloaded when none has wanted them for a while.
 *
 * A name stands for one thing: the own plan, then what the look finds, in its order.
 */
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Logger } from 'pino';
import { engineBytes, type MegapixelBudget, mostAlone, tooLarge } from '../admission.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import { type Selectable, sumOf, termsOf } from '../models/selectable.ts';
import type { PlanRun, RunnablePlan } from '../pipeline.ts';
import type { EngineMemory } from './engine-memory.ts';
import { EngineSet, type EngineSetParts } from './engine-set.ts';
import { LargeImageTurn } from './large-image-turn.ts';
import { hasServed, LoadTurns } from './load-turns.ts';
import type { Found, Look } from './look.ts';

/** If pictures are short of memory, engines give way that had no image for this time. */
const LONG_IDLE_MS = 30_000;

/** The node sees an added, prepared or removed model within this time. */
const LOOK_EACH_MS = 5000;

interface SelectablesParts extends Omit<EngineSetParts, 'engines' | 'onTurn'> {
  readonly memory: EngineMemory;
  readonly own: RunnablePlan & Pick<Selectable, 'kind' | 'goodFor'>;
  readonly look: Look;
  /** Gives the number of engines of a model that are opened at once. */
  readonly enginesOf: (model: PreparedModel) => number;
  readonly log: Logger;
}

/** A selectable that a header may name, as it is now. */
export interface SelectablePlan extends Selectable, RunnablePlan {
  readonly sha256: string;
  readonly isDefault: boolean;
  readonly memoryBytes: number;
  /** 0: unknown. */
  readonly loadMs: number;
}

/** An image's permission to have its engines; nothing changes before `enter`. */
export interface Room {
  /** The pictures' budget once its engines are loaded; undefined: they are loaded. */
  readonly budget: MegapixelBudget | undefined;
  /** Loads the engines that are not loaded. Call the returned function when the image is over. */
  enter(): () => void;
}

export class Selectables {
  readonly #parts: SelectablesParts;
  readonly #memory: EngineMemory;
  readonly #listeners = new Set<() => void>();
  readonly #sets = new Map<string, EngineSet>();
  /** Nothing names them any more, and they are not gone yet. */
  readonly #retired = new Set<EngineSet>();
  readonly #told = new Set<string>();
  readonly #loadTurns = new LoadTurns();
  #found: readonly Selectable[] = [];
  #list: readonly SelectablePlan[];
  #revision = 0;
  readonly #largeImages = new LargeImageTurn();
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> | undefined;
  #isClosed = false;

  constructor(parts: SelectablesParts) {
    this.#parts = parts;
    this.#memory = parts.memory;
    this.#list = [this.#describeOwn()];
  }

  /** The own plan first. */
  get list(): readonly SelectablePlan[] {
    return this.#list;
  }

  /** Rises when another list is advertised. */
  get revision(): number {
    return this.#revision;
  }

  /** A single model that is the own plan may be named as a plan too. */
  find(kind: Selectable['kind'], name: string): SelectablePlan | undefined {
    const isOf = (one: SelectablePlan) => one.kind === kind || (one.isDefault && kind === 'plan');
    return this.#list.find(one => one.name === name && isOf(one));
  }

  /** Looks now, and again and again. Answers after the first look. */
  async open(): Promise<void> {
    await this.look();
    if (!this.#isClosed) this.#timer = setInterval(() => void this.look(), LOOK_EACH_MS);
  }

  /** Runs one look at a time. Never rejects. */
  look(): Promise<void> {
    this.#looking ??= this.#lookOnce().finally(() => {
      this.#looking = undefined;
    });
    return this.#looking;
  }

  /**
   * Finds room for an image of so many megapixels. The engines longest without an image give way,
   * never those of the own plan. Engines that always have one give way by turns (load-turns.ts).
   * @throws ContractError NODE_INCAPABLE where it never fits; NODE_SHORT_OF_MEMORY
   */
  roomFor(plan: RunnablePlan, megapixels: number): Room {
    const sets = setsOf(plan);
    const missing = sets.filter(({ state }) => state === 'unloaded');
    const most = this.#memory.budgetBeside(bytesOf(sets));
    if (most === undefined || megapixels > mostAlone(most)) throw tooLarge();
    if (sets.length === 0) return this.#roomForOwn(megapixels);
    if (this.#loadTurns.haveToLeave(sets)) throw shortOfMemory();
    const isTurn = this.#largeImages.isOpen;
    const wanted = Math.max(megapixels, this.#largeImages.megapixelsKept);
    const kept = missing.length === 0 ? [] : this.#loadTurns.keptFrom(sets);
    const given = this.#giveWay(sets, bytesOf([...missing, ...kept]), wanted);
    const enter = () => {
      this.#loadTurns.entered(plan.name);
      return enterAll(sets);
    };
    if (missing.length === 0 && !(isTurn && given === undefined)) {
      for (const set of given?.leaving ?? []) set.unload('room');
      if (megapixels > this.#memory.megapixelsFree) this.#endLongIdle();
      return { budget: undefined, enter };
    }
    if (given === undefined) {
      if (isTurn) this.#largeImages.refuse();
      if (missing.length > 0) this.#loadRefused(plan, megapixels);
      throw shortOfMemory();
    }
    const load = () => {
      for (const set of given.leaving) set.unload('room');
      return enter();
    };
    return { budget: given.budget, enter: load };
  }

  /** Begins the turn of a load that has been refused for long. */
  #loadRefused(plan: RunnablePlan, megapixels: number): void {
    if (!this.#loadTurns.isDue(plan.name)) return;
    const sets = setsOf(plan);
    const missing = sets.filter(({ state }) => state === 'unloaded');
    const busy = this.#allSets()
      .filter(set => hasServed(set) && set.idleSinceMs === undefined && !sets.includes(set))
      .toSorted((one, other) => (one.servesSinceMs ?? 0) - (other.servesSinceMs ?? 0));
    const given = this.#giveWay(sets, bytesOf(missing), megapixels, busy);
    if (given !== undefined) this.#loadTurns.begin(plan.name, missing, given.leaving);
  }

  /**
   * If engines must leave, the image is refused until they are gone, and comes again. Until then
   * nothing is loaded instead of them, and engines that have an image get no other.
   */
  #roomForOwn(megapixels: number): Room {
    const given = this.#giveWay([], 0, megapixels);
    if (given?.leaving.length !== 0 && this.#largeImages.take(megapixels)) {
      for (const set of given?.leaving ?? []) set.unload('room');
    }
    if (megapixels > this.#memory.megapixelsFree) this.#endLongIdle();
    const enter = () => {
      this.#largeImages.entered(megapixels);
      return () => undefined;
    };
    return { budget: undefined, enter };
  }

  /** Lists the selectables beside the own plan whose engines are all loaded or loading. */
  loaded(): { readonly plan: SelectablePlan; readonly isLoading: boolean }[] {
    return this.#list.flatMap(plan => {
      const sets = setsOf(plan);
      if (plan.isDefault || sets.some(({ state }) => state === 'unloaded')) return [];
      return [{ plan, isLoading: sets.some(({ state }) => state === 'loading') }];
    });
  }

  /** Lists the runs of engines that are open beside the own plan's, each set once. */
  runs(): PlanRun[] {
    const open = this.#allSets().filter(({ state }) => state !== 'unloaded');
    const inPlans = this.#list.flatMap(({ runs }) => runs);
    return open.map(set => {
      const { role = 'subject' } = inPlans.find(({ engines }) => engines === set) ?? {};
      return { model: set.model, role, engines: set };
    });
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  processes(): readonly { readonly pid: number; readonly residentBytes: number | undefined }[] {
    return this.#allSets().flatMap(set => set.processes());
  }

  async close(graceMs: number): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    await Promise.all(this.#allSets().map(set => set.close(graceMs)));
  }

  #allSets(): EngineSet[] {
    return [...this.#sets.values(), ...this.#retired];
  }

  /**
   * Chooses of the idle engines first, then of `busy`. Undefined: it would not do if all of them
   * left.
   */
  #giveWay(
    sets: readonly EngineSet[],
    bytes: number,
    megapixels: number,
    busy: readonly EngineSet[] = [],
  ) {
    const idle = this.#allSets()
      .filter(set => set.idleSinceMs !== undefined && !sets.includes(set))
      .toSorted((one, other) => (one.idleSinceMs ?? 0) - (other.idleSinceMs ?? 0));
    const mayLeave = [...idle, ...busy];
    const leaving: EngineSet[] = [];
    for (;;) {
      const wanted = this.#memory.bytesWanted - bytesOf(leaving) + bytes;
      const budget = this.#memory.budgetBeside(wanted);
      if (budget !== undefined && megapixels <= mostAlone(budget)) return { leaving, budget };
      const next = mayLeave.shift();
      if (next === undefined) return undefined;
      leaving.push(next);
    }
  }

  /** Ends one set at a time: pictures are short of memory that nobody uses. */
  #endLongIdle(): void {
    const before = performance.now() - LONG_IDLE_MS;
    const longIdle = this.#allSets().find(({ idleSinceMs = before }) => idleSinceMs < before);
    longIdle?.unload('room');
  }

  async #lookOnce(): Promise<void> {
    let found: Found;
    try {
      found = await this.#parts.look();
    } catch (error) {
      this.#parts.log.error({ err: error }, 'models cannot be looked for');
      return;
    }
    if (this.#isClosed) return;
    for (const problem of found.problems) this.#warnOnce(problem);
    this.#found = found.selectable;
    this.#describe();
    for (const set of this.#retired) {
      if (set.state === 'unloaded' && set.processes().length === 0) this.#retired.delete(set);
    }
  }

  /** Describes the list anew from what was found, and from what failed. */
  #describe(): void {
    const list = [this.#describeOwn()];
    const named = new Set<EngineSet>();
    for (const selectable of this.#found) {
      if (selectable.name === this.#parts.own.name) continue;
      const plan = this.#describeOther(selectable);
      const sets = setsOf(plan);
      for (const set of sets) named.add(set);
      if (this.#fits(plan, sets) && !sets.some(({ isOff }) => isOff)) list.push(plan);
    }
    for (const [key, set] of this.#sets) {
      if (named.has(set)) continue;
      this.#sets.delete(key);
      this.#retired.add(set);
      set.retire();
    }
    this.#advertise(list);
  }

  #advertise(list: readonly SelectablePlan[]): void {
    const before = new Map(this.#list.map(one => [factsOf(one), one]));
    const same = list.map(one => before.get(factsOf(one)));
    if (list.length === this.#list.length && !same.includes(undefined)) return;
    this.#list = list.map((one, at) => same[at] ?? one);
    this.#revision += 1;
    this.#changed();
  }

  #describeOwn(): SelectablePlan {
    const { name, kind, runs, ...own } = this.#parts.own;
    const found = this.#found.find(other => other.name === name);
    const goodFor = own.goodFor || (found?.goodFor ?? '');
    return describe({ name, kind, goodFor, models: runs }, runs, true);
  }

  #describeOther(selectable: Selectable): SelectablePlan {
    const runs = selectable.models.map(({ model, role, extraRuns }): PlanRun => {
      const key = keyOf(model);
      const own = this.#parts.own.runs.find(run => keyOf(run.model) === key);
      if (own !== undefined) return { ...own, role, extraRuns };
      const engines = this.#setOf(key, model);
      return {
        role,
        extraRuns,
        engines,
        get model() {
          return engines.model;
        },
      };
    });
    return describe(selectable, runs, false);
  }

  #setOf(key: string, model: PreparedModel): EngineSet {
    const there = this.#sets.get(key);
    if (there !== undefined) return there;
    const engines = this.#parts.enginesOf(model);
    const set = new EngineSet(model, { ...this.#parts, engines, onTurn: () => this.#describe() });
    set.onChange(() => this.#changed());
    this.#sets.set(key, set);
    return set;
  }

  #fits({ kind, name }: SelectablePlan, sets: readonly EngineSet[]): boolean {
    const bytes = bytesOf(sets);
    if (this.#memory.budgetBeside(bytes) !== undefined) return true;
    const [needs, own, limit] = [bytes, this.#memory.ownBytes, this.#memory.limitBytes].map(inMb);
    const beside = `beside the ${own} of the own plan and a photo`;
    this.#warnOnce(
      `${kind} ${name} does not fit: it needs ${needs} ${beside}, the limit is ${limit}`,
    );
    return false;
  }

  #warnOnce(line: string): void {
    if (this.#told.has(line)) return;
    this.#told.add(line);
    this.#parts.log.warn({ reason: line }, 'a model cannot be asked for');
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/** Two models have one key if name and mattes are the same: precision and file are the node's. */
function keyOf(model: PreparedModel): string {
  return `${model.model} ${sumOf({ models: [{ model, role: 'subject' }] })}`;
}

function shortOfMemory(): ContractError {
  const detail = 'This node has no free memory for the engines of this model.';
  return new ContractError('NODE_SHORT_OF_MEMORY', detail);
}

function setsOf({ runs }: RunnablePlan): EngineSet[] {
  const sets = runs.map(({ engines }) => engines).filter(engines => engines instanceof EngineSet);
  return [...new Set(sets)];
}

function enterAll(sets: readonly EngineSet[]): () => void {
  const leaves = sets.map(set => set.enter());
  return () => {
    for (const leave of leaves) leave();
  };
}

function bytesOf(sets: readonly { readonly bytes: number }[]): number {
  return sets.reduce((sum, { bytes }) => sum + bytes, 0);
}

function describe(
  selectable: Selectable,
  runs: readonly PlanRun[],
  isDefault: boolean,
): SelectablePlan {
  const sets = setsOf({ name: selectable.name, runs });
  const pools = new Map(runs.map(({ engines, model }) => [engines, model]));
  const memory = [...pools].map(([engines, model]) => ({
    bytes: engines.snapshot().engines * engineBytes(model),
  }));
  // Another plan needs no load for the engines that the own plan has.
  const loads = isDefault ? runs.map(({ engines }) => engines.metrics().loadMs) : [];
  return {
    ...selectable,
    ...{ runs, isDefault, sha256: sumOf(selectable), memoryBytes: bytesOf(memory) },
    loadMs: Math.round(Math.max(0, ...loads, ...sets.map(set => set.loadMs))),
    ...(!isDefault && { ready: () => readyAll(sets) }),
  };
}

async function readyAll(sets: readonly EngineSet[]): Promise<void> {
  await Promise.all(sets.map(set => set.ready()));
}

/** Gives the facts of a selectable that the node advertises. */
function factsOf(one: SelectablePlan): string {
  const { name, kind, goodFor, sha256, memoryBytes, loadMs } = one;
  return JSON.stringify([name, kind, goodFor, sha256, memoryBytes, loadMs, termsOf(one)]);
}

function inMb(bytes: number): string {
  return `${Math.ceil(bytes / 1e6)} MB`;
}
