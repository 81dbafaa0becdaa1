/**
 * The control plane's configuration: the only file that reads the environment. Every bad variable is
 * named at once with the form it should have, never with its value, before anything is opened.
 */

export interface Config {
  readonly host: string;
  readonly port: number;
  /** Without a trailing slash; links are made of it, never of the Host header. */
  readonly baseUrl: string;
  readonly dataDir: string;
  readonly databaseUrl: string;
  readonly storageUrl: string;
  /** 32 bytes. */
  readonly secretsKey: Buffer | undefined;
  readonly registryHost: string;
  readonly registryPort: number;
  readonly metricsHost: string;
  readonly metricsPort: number;
  readonly nodeToken: string;
  readonly syncWaitMs: number;
  readonly resultTtlMs: number;
  readonly attemptTimeoutMs: number;
  readonly noNodeGraceMs: number;
  readonly readsRequireIdempotencyKey: boolean;
  readonly fetchPorts: readonly number[];
  readonly allowPrivateAddresses: boolean;
  readonly allowHttpCallbacks: boolean;
  readonly submissionsPerMinute: number;
  readonly readsPerMinute: number;
  readonly jobsInFlightMax: number;
  readonly queueMegapixelsMax: number;
  readonly logLevel: string;
}
