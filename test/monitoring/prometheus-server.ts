/** A real Prometheus on loopback with the rules of deploy/prometheus. */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { stringify } from 'yaml';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { ROOT } from '../running-service.ts';
import { findProgram, killChild, spawnBound } from '../support/foreign-program.ts';
import { until } from '../support/processes.ts';

/** By job name; host:port each. */
export type Targets = Readonly<Record<string, readonly string[]>>;

export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [number, string];
}

const RULES = ['alerts.yaml', 'recording.yaml'].map(name =>
  path.join(ROOT, 'deploy/prometheus', name),
);
const START_MS_MAX = 30_000;

export function skipWithoutPrometheus(): string | false {
  const here = findProgram('prometheus') !== undefined;
  if (here || process.env.MATTING_TEST_REQUIRE_PROMTOOL !== undefined) return false;
  return 'no Prometheus here: install prometheus';
}

export class PrometheusServer {
  readonly #child: ChildProcess;
  readonly #directory: string;
  readonly origin: string;

  private constructor(child: ChildProcess, directory: string, origin: string) {
    this.#child = child;
    this.#directory = directory;
    this.origin = origin;
  }

  static async start(targets: Targets, scrapeS = 1): Promise<PrometheusServer> {
    const program = findProgram('prometheus');
    assert.ok(program !== undefined, 'prometheus is installed');
    const directory = mkdtempSync(path.join(tmpdir(), 'matting-prometheus-'));
    const config = path.join(directory, 'prometheus.yaml');
    writeFileSync(config, configOf(targets, scrapeS));
    const [port] = await findFreePorts(1);
    const child = spawnBound(program, [
      `--config.file=${config}`,
      `--storage.tsdb.path=${path.join(directory, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
    ]);
    // The server would block on a full pipe.
    child.stderr?.resume();
    const server = new PrometheusServer(child, directory, `http://127.0.0.1:${port}`);
    process.once('exit', () => server.#remove());
    await until(
      async () => (await fetch(`${server.origin}/-/ready`).catch(() => null))?.ok === true,
      {
        timeoutMs: START_MS_MAX,
        what: 'Prometheus is ready',
      },
    );
    return server;
  }

  async query(expr: string): Promise<readonly Sample[]> {
    const url = new URL('/api/v1/query', this.origin);
    url.searchParams.set('query', expr);
    const answer = (await (await fetch(url)).json()) as {
      status: string;
      error?: string;
      data?: { result: Sample[] };
    };
    assert.equal(answer.status, 'success', `${expr}: ${answer.error}`);
    return answer.data?.result ?? [];
  }

  async close(): Promise<void> {
    await killChild(this.#child);
    this.#remove();
  }

  #remove(): void {
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

function configOf(targets: Targets, scrapeS: number): string {
  return stringify({
    global: { scrape_interval: `${scrapeS}s`, evaluation_interval: '1s' },
    rule_files: RULES,
    scrape_configs: Object.entries(targets).map(([job_name, addresses]) => ({
      job_name,
      static_configs: [{ targets: addresses }],
    })),
  });
}
