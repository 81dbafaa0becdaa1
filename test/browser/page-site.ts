/**
 * The account area of one process for a browser: the real HTTP application on a real SQLite
 * database at `http://localhost`, with an account in which everything has happened. No node: jobs
 * end by the steps a dispatcher would take.
 */
import { findFreePorts } from '../../bin/free-ports.ts';
import { fillAccount } from '../../control-plane/test/support/area/things.ts';
import {
  type AccountWorld,
  openWorld,
  type World,
} from '../../control-plane/test/support/area/world.ts';
import type { TestApp } from '../../control-plane/test/support/test-app.ts';

export class PageSite {
  readonly origin: string;
  readonly world: World;

  private constructor(origin: string, world: World) {
    this.origin = origin;
    this.world = world;
  }

  static async start(): Promise<PageSite> {
    const [port] = await findFreePorts(1);
    const origin = `http://localhost:${port}`;
    const world = await openWorld({ baseUrl: origin });
    await world.test.app.listen({ host: 'localhost', port });
    return new PageSite(origin, world);
  }

  get test(): TestApp {
    return this.world.test;
  }

  get ours(): AccountWorld {
    return this.world.ours;
  }

  /** Everything that a page can show happens in the account. */
  fill(): Promise<void> {
    return fillAccount(this.test, this.ours);
  }

  close(): Promise<void> {
    return this.world.close();
  }
}
