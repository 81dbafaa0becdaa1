/** A fleet whose every part can be killed, and accounts that submit to it. */
import { openDatabase } from '../../control-plane/src/store/database/connect.ts';
import { openStores, type Stores } from '../../control-plane/src/store/stores.ts';
import { fundedCaller } from '../../control-plane/test/store/fixtures.ts';
import { SILENT_LOG } from '../support/database.ts';
import { Fleet, type FleetOptions } from '../support/fleet/fleet.ts';
import type { GroundVictim } from '../support/fleet/ground.ts';
import type { Random } from '../support/random.ts';
import { descendantsOf } from '../support/running-service.ts';

export type Victim = 'control plane' | 'node' | 'engine' | 'picture worker' | GroundVictim;

export interface ChaosAccount {
  readonly accountId: string;
  readonly apiKey: string;
}

export class ChaosFleet {
  readonly fleet: Fleet;
  readonly stores: Stores;
  /** Of the account of the well-behaved caller. */
  readonly caller: ChaosAccount;

  private constructor(fleet: Fleet, stores: Stores, caller: ChaosAccount) {
    this.fleet = fleet;
    this.stores = stores;
    this.caller = caller;
  }

  static async start(options: FleetOptions): Promise<ChaosFleet> {
    const fleet = await Fleet.start(options);
    const stores = await openStores(fleet.ground.databaseUrl, {
      log: SILENT_LOG,
      migrations: 'run',
      renderOutboxBody: () => '{}',
    });
    return new ChaosFleet(fleet, stores, await createAccount(stores));
  }

  /** Base URLs of the control planes, without a trailing slash. */
  get urls(): readonly string[] {
    return this.fleet.planes.map(({ url }) => url);
  }

  /** With credits for everything it will ever submit. */
  createAccount(): Promise<ChaosAccount> {
    return createAccount(this.stores);
  }

  /** Rows of jobs that succeeded and did not expire; of one account, or of all. */
  async succeededJobs(accountId?: string): Promise<number> {
    const database = await openDatabase(this.fleet.ground.databaseUrl, { log: SILENT_LOG });
    try {
      let select = database.kysely
        .selectFrom('jobs')
        .select(eb => eb.fn.countAll<number>().as('jobs'))
        .where('state', '=', 'succeeded');
      if (accountId !== undefined) select = select.where('account_id', '=', accountId);
      return Number((await select.executeTakeFirstOrThrow()).jobs);
    } finally {
      await database.close();
    }
  }

  /** False: there was nothing of the kind to hit just now. */
  async kill(victim: Victim, random: Random): Promise<boolean> {
    switch (victim) {
      case 'control plane':
        return random.pick(this.fleet.planes).hit();
      case 'node':
        return random.pick(this.fleet.nodes).hit();
      case 'engine':
        return this.#killChild('engine-child', random);
      case 'picture worker':
        return this.#killChild('picture-worker', random);
      case 'database':
      case 'store':
        await this.fleet.ground.kill(victim, random);
        return true;
    }
  }

  /** Rejects where a program does not end with 0, or a process is left over. */
  async close(): Promise<void> {
    await this.stores.close();
    await this.fleet.close();
  }

  #killChild(program: string, random: Random): boolean {
    const children = this.fleet.nodes
      .flatMap(({ pid }) => (pid === undefined ? [] : descendantsOf(pid)))
      .filter(({ command }) => command.includes(program));
    if (children.length === 0) return false;
    try {
      process.kill(random.pick(children).pid, 'SIGKILL');
      return true;
    } catch {
      return false; // ended since the listing
    }
  }
}

async function createAccount(stores: Stores): Promise<ChaosAccount> {
  const { accountId, token } = await fundedCaller(stores, 1_000_000);
  return { accountId, apiKey: token };
}
