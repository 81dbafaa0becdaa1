/**
 * Processes are killed or stopped under load; MATTING_CHAOS_SEED repeats a run.
 * Needs: object-storage, removebg, mcp.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { ExecutionContext, SerialFn } from 'ava';
import { resultOfThumbnail } from '../../control-plane/core/jobs/blob-names.ts';
import { Sweeper } from '../../control-plane/core/retention/sweep.ts';
import type { Stores } from '../../control-plane/core/stores.ts';
import { creditsOf, fundedCaller } from '../../control-plane/core/test/fixtures.ts';
import { openDatabase } from '../../control-plane/database/connect.ts';
import type { BlobStore } from '../../control-plane/storage/blob-store.ts';
import { openStores } from '../../control-plane/test/fixtures.ts';
import { Fleet, type FleetOptions } from '../fleet/fleet.ts';
import type { GroundVictim } from '../fleet/ground.ts';
import { THIS_VERSION } from '../fleet/installed-version.ts';
import type { FleetProgram } from '../fleet/program.ts';
import type { Picture } from '../fleet/steady-load.ts';
import { at } from '../support/at.ts';
import { SILENT_LOG } from '../support/database.ts';
import { descendantsOf } from '../support/processes.ts';
import type { LogLine } from '../support/program.ts';
import { Random } from '../support/random.ts';
import { isNotTested } from '../support/skip.ts';
import { ChaosCaller, type Delivery } from './chaos-caller.ts';
import type { Manner } from './manners.ts';

export const OPERATOR_KEY = 'an-operator-key-of-the-storm-0123456789';
const SEED = Number(process.env.MATTING_CHAOS_SEED ?? 1);
const CALLERS = 16;
const ERROR_LEVEL = 50;
const CREDITS = 1_000_000;
/** A node starts in a few seconds. */
const PAUSE_MS = [300, 2500] as const;
/** At least one image is done in this many kills, on any machine. */
const KILLS_AN_IMAGE = 5;
/** Older than the sweeper's limit for anything unfinished. */
const LATER_MS = 2 * 3_600_000;

/** The fleet's own sweeper still holds the last hour's sweep. */
const ALWAYS_OURS: ConstructorParameters<typeof Sweeper>[0]['sweeps'] = {
  claim: async holder => ({ claim: { holder, fence: 1 }, walk: { part: 0, ageMs: null } }),
  renew: async () => true,
  release: async () => true,
  saveWalk: async () => true,
};

type Victim =
  | 'control plane'
  | 'node'
  | 'stopped control plane'
  | 'stopped node'
  | 'engine'
  | 'picture worker'
  | GroundVictim;
type Caller = Awaited<ReturnType<typeof fundedCaller>>;

interface FleetStormOptions {
  readonly fleet: FleetOptions;
  readonly kills: Readonly<Partial<Record<Victim, number>>>;
  readonly pauseMs?: readonly [number, number];
  /** Of the nodes' own plan, in order. */
  readonly ownModels: readonly string[];
  /** Images alternate between them. */
  readonly manners: readonly Manner[];
  /** All differ. */
  readonly picture: (index: number, manner: Manner) => Promise<Picture>;
  /** Longest time from the end of an outage of the database to the next image; absent: no limit. */
  readonly standstillMsMax?: number;
}

class FleetStorm {
  readonly #options: FleetStormOptions;
  readonly #random = new Random(SEED);
  readonly #fleet: Fleet;
  readonly #stores: Stores;
  readonly #account: Caller;
  readonly #caller: ChaosCaller;
  #next = 0;
  readonly #deliveries = new Map<number, Delivery>();
  readonly #endedAtMs: number[] = [];
  readonly #databaseHurtAtMs: number[] = [];

  private constructor(options: FleetStormOptions, fleet: Fleet, stores: Stores, account: Caller) {
    this.#options = options;
    this.#fleet = fleet;
    this.#stores = stores;
    this.#account = account;
    const { token: apiKey } = account;
    this.#caller = new ChaosCaller({ urls: this.#urls, apiKey, random: this.#random });
  }

  static async start(options: FleetStormOptions): Promise<FleetStorm> {
    const fleet = await Fleet.start(options.fleet);
    const stores = await openStores(fleet.ground.databaseUrl);
    return new FleetStorm(options, fleet, stores, await fundedCaller(stores, CREDITS));
  }

  get #urls(): readonly string[] {
    return this.#fleet.planes.map(({ url }) => url);
  }

  /** Rejects if a program's exit code is not 0, or a process is left. */
  async close(): Promise<void> {
    await this.#stores.close();
    await this.#fleet.close();
  }

  async #work(index: number): Promise<void> {
    const manner = this.#manner(index);
    const { file } = await this.#options.picture(index, manner);
    const key = `image-${index}`;
    const submissions = manner.submissions(Buffer.from(file), key);
    this.#deliveries.set(index, await this.#caller.deliver(key, submissions));
    this.#endedAtMs.push(performance.now());
  }

  #manner(index: number): Manner {
    const { manners } = this.#options;
    return at(manners, index % manners.length);
  }

  /** @param act gets the callers' failures, which fail it */
  async #underLoad(act: (failures: readonly unknown[]) => Promise<void>): Promise<void> {
    let going = true;
    const failures: unknown[] = [];
    const callers = Array.from({ length: CALLERS }, async () => {
      while (going) await this.#work(this.#next++).catch(error => failures.push(error));
    });
    try {
      await act(failures);
    } finally {
      going = false;
      await Promise.all(callers);
    }
    assert.deepEqual(failures, [], this.#fleet.logTail());
  }

  async losesNothingInTurns(t: ExecutionContext): Promise<void> {
    const { programs } = this.#fleet;
    const errors: LogLine[] = [];
    await this.#underLoad(async failures => {
      for (const program of programs) {
        const made = this.#deliveries.size;
        while (this.#deliveries.size === made && failures.length === 0) await delay(50);
        await program.stop();
        errors.push(...errorsOf(program));
        program.start();
        await program.untilReady();
      }
    });
    assert.deepEqual([...errors, ...programs.flatMap(errorsOf)], []);
    const ids = [...this.#deliveries.values()].flatMap(({ jobIds }) => jobIds);
    for (const id of ids) {
      const job = await this.#stores.jobs.find(id);
      assert.deepEqual([job?.state, job?.lostAttempts, job?.takeovers], ['succeeded', 0, 0], id);
    }
    t.log(`${ids.length} images while ${programs.length} programs were restarted`);
  }

  async answersEveryRequest(t: ExecutionContext): Promise<void> {
    const plan = this.#random.shuffle(
      Object.entries(this.#options.kills).flatMap(([victim, times]) =>
        Array<Victim>(times).fill(victim as Victim),
      ),
    );
    const before = this.#deliveries.size;
    await this.#underLoad(async failures => {
      let ended = before;
      for (const [number, victim] of plan.entries()) {
        await delay(this.#random.between(...(this.#options.pauseMs ?? PAUSE_MS)));
        while (!(await this.#kill(victim))) await delay(50);
        if (number % KILLS_AN_IMAGE !== 0) continue;
        // If starts take longer than the pauses, no image would ever be done.
        while (this.#deliveries.size === ended && failures.length === 0) await delay(50);
        ended = this.#deliveries.size;
      }
      await delay(PAUSE_MS[1]);
    });
    t.log(`seed ${SEED}: ${plan.length} kills, ${this.#deliveries.size} images`);
    assert.ok(this.#deliveries.size - before > plan.length / KILLS_AN_IMAGE);
    this.#requireFailOvers(t);
  }

  #requireFailOvers(t: ExecutionContext): void {
    const gaps = this.#databaseHurtAtMs.map(
      hurtMs => Math.min(...this.#endedAtMs.filter(ms => ms > hurtMs)) - hurtMs,
    );
    t.log(
      `no image was done for ${Math.round(Math.max(0, ...gaps))} ms after an end of the database`,
    );
    const { standstillMsMax = Infinity } = this.#options;
    assert.ok(
      gaps.every(gapMs => gapMs <= standstillMsMax),
      `${gaps}`,
    );
  }

  /** Through each control plane, which uses the fleet's own certificates. */
  async showsNodes(): Promise<void> {
    const headers = { authorization: `Bearer ${OPERATOR_KEY}` };
    for (const { ports } of this.#fleet.planes) {
      for (const { name } of this.#fleet.nodes) {
        const page = `http://127.0.0.1:${ports.metrics}/operator/nodes/${name}/info`;
        const info = (await (await fetch(page, { headers })).json()) as { nodeId: string };
        assert.equal(info.nodeId, name);
      }
    }
  }

  async leavesNothingOpen(): Promise<void> {
    await this.#fleet.command(THIS_VERSION, 'credits', 'check', '--full');
    const { ledger } = this.#stores;
    const credits = await creditsOf(this.#stores, this.#account.accountId);
    assert.equal(credits?.reserved, 0);
    assert.deepEqual(await ledger.check(), []);
    const deliveries = [...this.#deliveries.values()];
    const jobs = deliveries.flatMap(({ jobIds }) => jobIds);
    assert.equal(new Set(jobs).size, jobs.length, 'a job of two keys');
    assert.equal(credits?.sums.reserve, jobs.length, 'a job that no caller was told of');
    const succeeded = deliveries.filter(({ job }) => job.status === 'succeeded');
    assert.equal(credits?.sums.charge, succeeded.length);
    for (const { job } of deliveries) {
      const now = await this.#caller.read(job.job_id);
      assert.deepEqual([now.status, now.result], [job.status, job.result]);
    }
  }

  async keepsEveryResult(t: ExecutionContext): Promise<void> {
    const urls = this.#urls;
    let pictures = 0;
    for (const [index, { job, idempotencyKey, pictures: answers }] of this.#deliveries) {
      const manner = this.#manner(index);
      const what = `${idempotencyKey}, ${manner.name}`;
      if (job.status !== 'succeeded') {
        // Lost twice with its engine or worker: the contract's verdict for the image.
        assert.equal(job.error?.code, 'PROCESSING_FAILED', `${what} ${job.status}`);
        continue;
      }
      assert.deepEqual(
        job.models?.map(({ name }) => name),
        this.#options.ownModels,
        what,
      );
      const link = new URL(job.result!.url);
      const answer = await fetch(`${urls[index % urls.length]}${link.pathname}`);
      assert.equal(answer.status, 200, what);
      const result = Buffer.from(await answer.arrayBuffer());
      const sha256 = createHash('sha256').update(result).digest('hex');
      for (const whole of answers) assert.deepEqual(whole, [job.job_id, sha256], what);
      pictures += answers.length;
      const { requireCutOut } = await this.#options.picture(index, manner);
      await requireCutOut(result).catch((error: Error) => {
        assert.fail(`${what}: ${error.message}`);
      });
    }
    t.log(`${pictures} pictures as answers`);
    assert.ok(pictures > 0);
  }

  async leavesNoOrphan(): Promise<void> {
    const stores = this.#stores;
    const blobStore = await this.#fleet.ground.openStorage();
    const names = async () => {
      const found: string[] = [];
      for await (const name of blobStore.listOlderThan(0)) found.push(name);
      return found;
    };
    const sweeper = new Sweeper({
      jobStore: stores.jobs,
      outbox: stores.outbox,
      blobStore: twoHoursOn(blobStore),
      sweeps: ALWAYS_OURS,
      holder: 'chaos',
      jobRetentionMs: 30 * 24 * 3_600_000,
      logger: {
        info: () => undefined,
        error: (fields: object) => assert.fail(JSON.stringify(fields)),
      },
    });
    for (let left = -1, now = (await names()).length; now !== left; now = (await names()).length) {
      left = now;
      await sweeper.sweep();
    }
    await sweeper.stop();
    const kept = await names();
    assert.deepEqual(await stores.jobs.referencedBlobs(kept), new Set(kept));
    const thumbnails = kept.filter(name => resultOfThumbnail(name) !== name).length;
    assert.equal(kept.length - thumbnails, await this.#succeededJobs());
    assert.equal(thumbnails, await this.#succeededJobs({ withThumbnail: true }));
    assert.ok(thumbnails > 0);
  }

  /** Without expired ones. */
  async #succeededJobs({ withThumbnail = false } = {}): Promise<number> {
    const database = await openDatabase(this.#fleet.ground.databaseUrl, { log: SILENT_LOG });
    try {
      let select = database.kysely
        .selectFrom('jobs')
        .select(eb => eb.fn.countAll<number>().as('jobs'))
        .where('state', '=', 'succeeded');
      if (withThumbnail) select = select.where('result_thumbnail_bytes', 'is not', null);
      return Number((await select.executeTakeFirstOrThrow()).jobs);
    } finally {
      await database.close();
    }
  }

  /** False: nothing to hit. */
  async #kill(victim: Victim): Promise<boolean> {
    switch (victim) {
      case 'control plane':
        return this.#random.pick(this.#fleet.planes).hit();
      case 'node':
        return this.#random.pick(this.#fleet.nodes).hit();
      case 'stopped control plane':
        return restarted(this.#random.pick(this.#fleet.planes));
      case 'stopped node':
        return restarted(this.#random.pick(this.#fleet.nodes));
      case 'engine':
        return this.#killChild('engine-child');
      case 'picture worker':
        return this.#killChild('picture-worker');
      case 'database':
        this.#databaseHurtAtMs.push(performance.now());
        await this.#fleet.ground.kill(victim, this.#random);
        return true;
      case 'store':
        await this.#fleet.ground.kill(victim, this.#random);
        return true;
    }
  }

  #killChild(program: string): boolean {
    const children = this.#fleet.nodes
      .flatMap(node => (node.running ? descendantsOf(node.pid) : []))
      .filter(({ command }) => command.includes(program));
    if (children.length === 0) return false;
    try {
      process.kill(this.#random.pick(children).pid, 'SIGKILL');
      return true;
    } catch {
      return false; // ended since the listing
    }
  }
}

async function restarted(program: FleetProgram): Promise<boolean> {
  await program.untilReady();
  await program.stop();
  program.start();
  return true;
}

const errorsOf = ({ lines }: FleetProgram) => lines.filter(({ level }) => level >= ERROR_LEVEL);

function twoHoursOn(store: BlobStore): Pick<BlobStore, 'remove' | 'listOlderThan'> {
  return {
    remove: name => store.remove(name),
    listOlderThan: (ageMs, part) => store.listOlderThan(Math.max(0, ageMs - LATER_MS), part),
  };
}

export function describeStorm(
  test: SerialFn,
  name: string,
  skip: string | false,
  options: () => FleetStormOptions,
): void {
  let storm: FleetStorm;
  const run = test.skipIf(isNotTested(skip));
  test.before(async () => {
    storm = await FleetStorm.start(options());
  });
  test.after.always(() => storm?.close());
  run(`${name} › shows its nodes to the operator`, t => t.notThrowsAsync(storm.showsNodes()));
  run(
    `${name} › loses no attempt and logs no error while each program is restarted in its turn`,
    t => t.notThrowsAsync(storm.losesNothingInTurns(t)),
  );
  run(`${name} › answers every request, whichever process dies`, t =>
    t.notThrowsAsync(storm.answersEveryRequest(t)),
  );
  run(`${name} › leaves no job open and no credit astray`, t =>
    t.notThrowsAsync(storm.leavesNothingOpen()),
  );
  run(`${name} › keeps every result, each of its own image, the same as every answer`, t =>
    t.notThrowsAsync(storm.keepsEveryResult(t)),
  );
  run(`${name} › leaves no blob that no job names once it is swept`, t =>
    t.notThrowsAsync(storm.leavesNoOrphan()),
  );
}
