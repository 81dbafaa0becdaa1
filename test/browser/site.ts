/**
 * The whole service with its account area for a browser: `matting up` with the small model, at
 * `http://localhost` on free ports, and the CLI of its operator.
 */
import assert from 'node:assert/strict';
import { findStackPorts } from '../../bin/stack.ts';
import { type RunningService, spawnMatting, startService } from '../support/running-service.ts';

export class Site {
  /** Such as `http://localhost:41234`. */
  readonly origin: string;
  readonly service: RunningService;

  private constructor(origin: string, service: RunningService) {
    this.origin = origin;
    this.service = service;
  }

  /** @param settingsOf what else is set, for a site at that origin */
  static async start(
    settingsOf: (origin: string) => Promise<Readonly<Record<string, string>>>,
  ): Promise<Site> {
    const { http } = await findStackPorts();
    const origin = `http://localhost:${http}`;
    const env = { MATTING_PORT: String(http), MATTING_BASE_URL: origin };
    return new Site(origin, await startService({ ...env, ...(await settingsOf(origin)) }));
  }

  /** What `matting …` prints; it must succeed. */
  async cli(...args: string[]): Promise<string> {
    const { exited, output } = spawnMatting(args, this.service.env);
    assert.equal(await exited, 0, `matting ${args.join(' ')}: ${output()}`);
    return output();
  }

  /** The first address below /account in what a command prints. */
  async link(...args: string[]): Promise<string> {
    const printed = await this.cli(...args);
    const link = /http:\/\/localhost:\d+\/account\S*/.exec(printed)?.[0];
    assert.ok(link, `no link of the account area: ${printed}`);
    assert.ok(link.startsWith(`${this.origin}/`), link);
    return link;
  }

  close(): Promise<void> {
    return this.service.close();
  }
}
