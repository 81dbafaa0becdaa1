/** Leads every connection to the one member that takes writes. */
import { setTimeout as delay } from 'node:timers/promises';
import { within } from '@matting/program/waiting.ts';
import { at } from '../at.ts';
import { type ClusterMember, type DatabaseCluster, urlOfPort } from './cluster.ts';
import { TcpProxy } from './tcp-proxy.ts';

const CHECK_EACH_MS = 300;
/** A member that does not answer a check within this counts as not writable. */
const ANSWER_MS_MAX = 2_000;
/** Checks in a row before the router switches. */
const FAILED_CHECKS_MAX = 2;

export class WriterRouter {
  readonly #members: readonly ClusterMember[];
  readonly #closing = new AbortController();
  #proxy: TcpProxy | undefined;
  #checking: Promise<void> | undefined;
  #writer: ClusterMember;

  private constructor({ members }: DatabaseCluster) {
    this.#members = members;
    this.#writer = at(members, 0);
  }

  static async open(cluster: DatabaseCluster): Promise<WriterRouter> {
    const router = new WriterRouter(cluster);
    router.#proxy = await TcpProxy.open(() => [router.writer.port]);
    router.#checking = router.#check();
    return router;
  }

  /** Stays the same while it takes writes. */
  get writer(): ClusterMember {
    return this.#writer;
  }

  get url(): string {
    return urlOfPort(this.#proxy?.port ?? 0);
  }

  async close(): Promise<void> {
    this.#closing.abort();
    await this.#checking;
    await this.#proxy?.close();
  }

  async #check(): Promise<void> {
    const { signal } = this.#closing;
    for (let failed = 0; !signal.aborted; ) {
      failed = (await takesWrites(this.#writer)) ? 0 : failed + 1;
      if (failed >= FAILED_CHECKS_MAX) await this.#leadElsewhere();
      await delay(CHECK_EACH_MS, undefined, { signal, ref: false }).catch(() => undefined);
    }
  }

  async #leadElsewhere(): Promise<void> {
    for (const member of this.#members) {
      if (member === this.#writer || !(await takesWrites(member))) continue;
      this.#writer = member;
      break;
    }
    this.#proxy?.cut();
  }
}

function takesWrites(member: ClusterMember): Promise<boolean> {
  const tooLate = () => new Error('no answer');
  return within(member.takesWrites(), ANSWER_MS_MAX, tooLate).catch(() => false);
}
