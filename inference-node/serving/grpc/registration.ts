/**
 * The node's membership of the fleet, at whichever control plane answers: all of them write the
 * same table. The node serves even if none answers.
 *
 * A failed call is tried at the next address at once, and if all failed, after 1, 2, 4 ... 15 s.
 * Repeated COMMAND_DRAIN and COMMAND_UNDRAIN are harmless. Only changes are logged.
 */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import type { Metadata, ServiceError } from '@grpc/grpc-js';
import type { ChannelSecurity } from '@matting/program/tls/tls-files.ts';
import { MESSAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import {
  Command,
  HeartbeatRequest,
  type HeartbeatResponse,
  NodeRegistryClient,
  RegisterRequest,
  type RegisterResponse,
} from '@matting/proto/gen/matting/v1/node_registry.ts';
import type { Logger } from 'pino';
import { tokenMetadata } from './callers.ts';
import type { NodeIdentity } from './node-info.ts';

interface RegistrationOptions {
  readonly registryAddresses: readonly string[];
  readonly identity: NodeIdentity;
  /** host:port of the Matte service, as control planes reach it. */
  readonly address: string;
  /** host:port of metrics and health. */
  readonly httpAddress: string;
  /** Read for each call, since it may change. */
  readonly token: () => string | undefined;
  readonly security: ChannelSecurity;
  readonly onDrainCommand: (drain: boolean) => void;
  readonly log: Logger;
  readonly bounds?: RegistrationBounds;
}

const REGISTRATION_BOUNDS = {
  callTimeoutMs: 3000,
  backoffMinMs: 1000,
  backoffMaxMs: 15_000,
  /** Bounds of the intervals that a control plane may request. */
  heartbeatMinMs: 500,
  heartbeatMaxMs: 30_000,
};
type RegistrationBounds = Readonly<typeof REGISTRATION_BOUNDS>;

/** Fraction of a wait. Nodes that started together must not beat together. */
const JITTER = 0.1;

type Unary<Response> = (
  client: NodeRegistryClient,
  metadata: Metadata,
  deadline: number,
  callback: (error: ServiceError | null, response: Response) => void,
) => void;

export class Registration {
  readonly #options: RegistrationOptions;
  readonly #bounds: RegistrationBounds;
  readonly #registries: readonly {
    readonly address: string;
    readonly client: NodeRegistryClient;
  }[];
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  #left: Promise<void> | undefined;
  #current = 0;
  #registered = false;
  /** Undefined until the first answer or failure; later changes are logged. */
  #reachable: boolean | undefined;

  constructor(options: RegistrationOptions) {
    this.#options = options;
    this.#bounds = options.bounds ?? REGISTRATION_BOUNDS;
    const { credentials, options: channelOptions } = options.security;
    this.#registries = options.registryAddresses.map(address => {
      const client = new NodeRegistryClient(address, credentials, {
        ...channelOptions,
        'grpc.enable_retries': 0,
        // Control planes are internal: a proxy of the environment is not for them.
        'grpc.enable_http_proxy': 0,
        'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
        'grpc.max_send_message_length': MESSAGE_BYTES_MAX,
        // grpc-js would back off longer than we do, and fail our calls without trying.
        'grpc.initial_reconnect_backoff_ms': this.#bounds.backoffMinMs,
        'grpc.max_reconnect_backoff_ms': this.#bounds.backoffMinMs,
      });
      return { address, client };
    });
    this.#running = this.#run();
  }

  leave(): Promise<void> {
    this.#left ??= this.#leave();
    return this.#left;
  }

  async #run(): Promise<void> {
    let heartbeatMs = this.#bounds.heartbeatMaxMs;
    while (!this.#stop.signal.aborted) {
      if (this.#registered) {
        await this.#wait(heartbeatMs);
        const answer = await this.#untilAnswered(this.#heartbeat);
        if (answer !== undefined) this.#obey(answer.command);
      } else {
        const answer = await this.#untilAnswered(this.#register);
        if (answer === undefined) continue;
        this.#registered = true;
        heartbeatMs = this.#clampHeartbeat(answer.heartbeatIntervalMs);
        this.#options.log.info({ registry: this.#registry.address }, 'registered');
      }
    }
  }

  async #leave(): Promise<void> {
    this.#stop.abort();
    await this.#running;
    const { nodeId, bootId } = this.#options.identity;
    const deregister: Unary<unknown> = (client, metadata, deadline, callback) =>
      client.deregister({ nodeId, bootId }, metadata, { deadline }, callback);
    if (this.#registered) {
      const failure = await this.#oneRound(deregister).then(
        () => undefined,
        (error: Error) => error,
      );
      if (failure) this.#options.log.warn({ reason: failure.message }, 'not deregistered');
      else this.#options.log.info('deregistered');
    }
    for (const { client } of this.#registries) client.close();
  }

  get #registry() {
    const registry = this.#registries[this.#current];
    assert(registry !== undefined, 'a membership has at least one address');
    return registry;
  }

  readonly #register: Unary<RegisterResponse> = (client, metadata, deadline, callback) => {
    const { identity, address, httpAddress } = this.#options;
    const request = RegisterRequest.create({ ...identity, address, httpAddress });
    client.register(request, metadata, { deadline }, callback);
  };

  readonly #heartbeat: Unary<HeartbeatResponse> = (client, metadata, deadline, callback) => {
    const { nodeId, bootId } = this.#options.identity;
    client.heartbeat(HeartbeatRequest.create({ nodeId, bootId }), metadata, { deadline }, callback);
  };

  #obey(command: Command): void {
    if (command === Command.COMMAND_REGISTER) this.#registered = false;
    else if (command === Command.COMMAND_DRAIN) this.#options.onDrainCommand(true);
    else if (command === Command.COMMAND_UNDRAIN) this.#options.onDrainCommand(false);
  }

  async #untilAnswered<T>(call: Unary<T>): Promise<T | undefined> {
    let backoffMs = this.#bounds.backoffMinMs;
    while (!this.#stop.signal.aborted) {
      try {
        const answer = await this.#oneRound(call);
        this.#report(true, '');
        return answer;
      } catch (error) {
        this.#report(false, error instanceof Error ? error.message : String(error));
        await this.#wait(backoffMs);
        backoffMs = Math.min(backoffMs * 2, this.#bounds.backoffMaxMs);
      }
    }
    return undefined;
  }

  async #oneRound<T>(call: Unary<T>): Promise<T> {
    let lastError: unknown;
    for (let tried = 0; tried < this.#registries.length; tried += 1) {
      try {
        return await this.#call(call);
      } catch (error) {
        lastError = error;
        this.#current = (this.#current + 1) % this.#registries.length;
      }
    }
    throw lastError;
  }

  #call<T>(call: Unary<T>): Promise<T> {
    const deadline = Date.now() + this.#bounds.callTimeoutMs;
    const metadata = tokenMetadata(this.#options.token());
    return new Promise((resolve, reject) => {
      call(this.#registry.client, metadata, deadline, (error, response) => {
        if (error) reject(error);
        else resolve(response);
      });
    });
  }

  async #wait(ms: number): Promise<void> {
    const jittered = ms * (1 - JITTER + 2 * JITTER * Math.random());
    const { signal } = this.#stop;
    await delay(jittered, undefined, { signal }).catch((error: unknown) => {
      if (!signal.aborted) throw error;
    });
  }

  #clampHeartbeat(ms: number): number {
    return Math.min(Math.max(ms, this.#bounds.heartbeatMinMs), this.#bounds.heartbeatMaxMs);
  }

  #report(reachable: boolean, reason: string): void {
    if (reachable === this.#reachable) return;
    const { log, registryAddresses } = this.#options;
    if (!reachable) {
      log.warn({ registries: registryAddresses, reason }, 'no control plane answers; trying on');
    } else if (this.#reachable === false) {
      log.info({ registry: this.#registry.address }, 'a control plane answers again');
    }
    this.#reachable = reachable;
  }
}
