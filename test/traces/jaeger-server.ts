/** A real Jaeger on loopback, in memory. */
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { findFreePorts } from '../../program/ports/free-ports.ts';
import { findProgram, killChild, spawnBound } from '../support/foreign-program.ts';
import { until } from '../support/processes.ts';

const START_MS_MAX = 60_000;
/** Ports of an all-in-one; unused ones are set too, to keep them on loopback. */
const PORTS = [
  'query.http-server',
  'collector.otlp.http',
  'collector.otlp.grpc',
  'collector.http-server',
  'collector.grpc-server',
  'query.grpc-server',
  'admin.http',
] as const;

export interface JaegerSpan {
  readonly spanID: string;
  readonly operationName: string;
  readonly processID: string;
  readonly references: readonly { readonly refType: string; readonly spanID: string }[];
  readonly tags: readonly { readonly key: string; readonly value: unknown }[];
}

export interface JaegerTrace {
  readonly spans: readonly JaegerSpan[];
  readonly processes: Readonly<Record<string, { readonly serviceName: string }>>;
}

export function skipWithoutJaeger(): string | false {
  const here = findProgram('jaeger') !== undefined;
  if (here || process.env.MATTING_TEST_REQUIRE_JAEGER !== undefined) return false;
  return 'no Jaeger here: put its all-in-one into MATTING_TEST_TOOLS or the PATH, named jaeger';
}

export class JaegerServer {
  readonly #child: ChildProcess;
  readonly #query: string;
  readonly endpoint: string;

  private constructor(child: ChildProcess, query: string, endpoint: string) {
    this.#child = child;
    this.#query = query;
    this.endpoint = endpoint;
  }

  static async start(): Promise<JaegerServer> {
    const program = findProgram('jaeger');
    assert.ok(program !== undefined, 'Jaeger is installed');
    const ports = await findFreePorts(PORTS.length);
    const options = PORTS.map((name, index) => `--${name}.host-port=127.0.0.1:${ports[index]}`);
    const child = spawnBound(program, ['--log-level=error', ...options]);
    // The server would block on a full pipe.
    child.stderr?.resume();
    const [query, otlp] = ports.map(port => `http://127.0.0.1:${port}`);
    const server = new JaegerServer(child, String(query), String(otlp));
    await until(async () => (await server.#get('/api/services'))?.ok === true, {
      timeoutMs: START_MS_MAX,
      what: 'Jaeger answers',
    });
    return server;
  }

  /** Undefined: unknown trace. */
  async trace(traceId: string): Promise<JaegerTrace | undefined> {
    const answer = await this.#get(`/api/traces/${traceId}`);
    if (!answer?.ok) return undefined;
    const { data } = (await answer.json()) as { data: JaegerTrace[] };
    return data[0];
  }

  close(): Promise<void> {
    return killChild(this.#child);
  }

  #get(path: string): Promise<Response | null> {
    return fetch(`${this.#query}${path}`).catch(() => null);
  }
}
