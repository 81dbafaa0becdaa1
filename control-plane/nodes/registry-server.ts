/**
 * matting.v1.NodeRegistry. Every replica serves it, and all write one table, so a node may talk to
 * any of them.
 */

import {
  type Metadata,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type sendUnaryData,
} from '@grpc/grpc-js';
import {
  type GrpcGuard,
  type GuardCause,
  guardGrpcServer,
} from '@matting/program/ports/grpc-guard.ts';
import { bindGrpcServer, shutDownGrpcServer } from '@matting/program/ports/grpc-server.ts';
import {
  GUARD_BOUNDS,
  type GuardBounds,
  guardBoundsWithin,
} from '@matting/program/ports/guard-bounds.ts';
import { isSameToken } from '@matting/program/tokens.ts';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import { toStatus } from '@matting/proto/contract/grpc-status.ts';
import { MESSAGE_BYTES_SMALL } from '@matting/proto/contract/limits.ts';
import {
  Command,
  NodeRegistryService,
  type RegisterRequest,
} from '@matting/proto/gen/matting/v1/node_registry.ts';
import type { Logger } from 'pino';
import type { NodeStore } from './node-store.ts';

type NodeTiming = typeof NODE_TIMING;

/** Three heartbeats fit into a lease, so two may be lost. */
export const NODE_TIMING = { leaseMs: 15_000, heartbeatMs: 5000 };

const CONCURRENT_CALLS_MAX = 16;
/** Each node holds one connection, so this bounds the fleet. */
const REGISTRY_BOUNDS: GuardBounds = { ...GUARD_BOUNDS, knownMax: 4096 };
const FILES_SHARE = 0.25;
const VERSION_LENGTH_MAX = 64;
const ADDRESS_LENGTH_MAX = 259;
const SHUTDOWN_GRACE_MS = 1000;

const NODE_ID = /^[A-Za-z0-9._-]{1,64}$/;
const BOOT_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const HOST_AND_PORT = /^(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/;
const UNDIALABLE_HOSTS: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

type Membership = Pick<NodeStore, 'register' | 'heartbeat' | 'deregister' | 'find'>;

interface RegistryServerOptions {
  readonly host: string;
  /** 0: the system chooses. */
  readonly port: number;
  /** All are accepted. Read for each call, since they may change. */
  readonly nodeTokens: () => readonly string[];
  readonly credentials?: ServerCredentials;
  readonly membership: Membership;
  readonly timing?: NodeTiming;
  readonly onMembersChanged: () => void;
  readonly onRefused: (refusal: NodeRefusal) => void;
  readonly onFailure: (error: unknown) => void;
  readonly onEnded?: (cause: GuardCause) => void;
  readonly guardBounds?: Partial<GuardBounds>;
}

interface NodeNamed {
  readonly nodeId: string;
}

type Handle<Request, Response> = (request: Request, peer: string) => Promise<Response>;

const REFUSALS: Partial<Record<ErrorCode, NodeRefusal['cause']>> = {
  INVALID_NODE_TOKEN: 'token',
  INVALID_REQUEST: 'invalid',
};

export class RegistryServer {
  readonly #server: Server;
  readonly #guard: GrpcGuard;
  readonly #options: RegistryServerOptions;
  readonly #timing: NodeTiming;
  #port = 0;

  constructor(options: RegistryServerOptions) {
    this.#options = options;
    this.#timing = options.timing ?? NODE_TIMING;
    this.#server = new Server({
      'grpc.max_receive_message_length': MESSAGE_BYTES_SMALL,
      'grpc.max_send_message_length': MESSAGE_BYTES_SMALL,
      'grpc.keepalive_time_ms': 20_000,
      'grpc.keepalive_timeout_ms': 10_000,
    });
    this.#guard = guardGrpcServer(this.#server, {
      identify: metadata => (this.#carriesToken(metadata) ? { kind: 'fleet' } : undefined),
      streamsMax: CONCURRENT_CALLS_MAX,
      onEnded: options.onEnded,
      bounds: { ...guardBoundsWithin(REGISTRY_BOUNDS, FILES_SHARE), ...options.guardBounds },
    });
    this.#server.addService(NodeRegistryService, {
      register: this.#unary(request => this.#register(request)),
      heartbeat: this.#unary(({ nodeId, bootId }, peer) => this.#heartbeat(nodeId, bootId, peer)),
      deregister: this.#unary(({ nodeId, bootId }) => this.#deregister(nodeId, bootId)),
    });
  }

  get connections(): GrpcGuard {
    return this.#guard;
  }

  get port(): number {
    return this.#port;
  }

  async listen(): Promise<void> {
    const { host, port, credentials = ServerCredentials.createInsecure() } = this.#options;
    this.#port = await bindGrpcServer(this.#server, { host, port, credentials });
  }

  close(): Promise<void> {
    return shutDownGrpcServer(this.#server, SHUTDOWN_GRACE_MS);
  }

  #unary<Request extends NodeNamed, Response>(handle: Handle<Request, Response>) {
    return (call: ServerUnaryCall<Request, Response>, callback: sendUnaryData<Response>): void => {
      this.#answer(call, handle).then(
        response => callback(null, response),
        error => {
          if (error instanceof ContractError) this.#refused(call, error);
          else this.#options.onFailure(error);
          callback(toStatus(error));
        },
      );
    };
  }

  /** Reports a refusal for a fault of the node, not for one of the database. */
  #refused(call: ServerUnaryCall<NodeNamed, unknown>, { code, message }: ContractError): void {
    const cause = REFUSALS[code];
    if (cause === undefined) return;
    const { nodeId: given } = call.request;
    const nodeId = NODE_ID.test(given) ? given : undefined;
    this.#options.onRefused({ cause, nodeId, peer: call.getPeer(), detail: message });
  }

  async #answer<Request, Response>(
    call: ServerUnaryCall<Request, Response>,
    handle: Handle<Request, Response>,
  ): Promise<Response> {
    if (!this.#carriesToken(call.metadata)) {
      throw new ContractError('INVALID_NODE_TOKEN', 'The node token is missing or wrong.');
    }
    return await handle(call.request, call.getPeer());
  }

  #carriesToken(metadata: Metadata): boolean {
    const given = metadata.get('authorization');
    // Compares with all tokens, so that the time does not reveal which one matches.
    const found = this.#options
      .nodeTokens()
      .filter(token => isSameToken(String(given[0]), `Bearer ${token}`));
    return given.length === 1 && found.length > 0;
  }

  async #register(request: RegisterRequest) {
    const { nodeId, bootId, address, httpAddress, version } = request;
    requireNames(nodeId, bootId);
    requireAddress('address', address);
    if (httpAddress !== '') requireAddress('http_address', httpAddress);
    if (version.length > VERSION_LENGTH_MAX) throw invalid(`version: over ${VERSION_LENGTH_MAX}`);
    const { membership, onMembersChanged } = this.#options;
    const node = { nodeId, bootId, address, httpAddress, version };
    const { leaseMs, heartbeatMs } = this.#timing;
    await membership.register(node, leaseMs);
    onMembersChanged();
    return { heartbeatIntervalMs: heartbeatMs, leaseMs };
  }

  async #heartbeat(nodeId: string, bootId: string, peer: string) {
    requireNames(nodeId, bootId);
    const { membership } = this.#options;
    const { leaseMs } = this.#timing;
    const { known, draining } = await membership.heartbeat(nodeId, bootId, leaseMs);
    if (!known) {
      await this.#noteReplaced(nodeId, bootId, peer);
      return { leaseMs, command: Command.COMMAND_REGISTER };
    }
    // Every answer repeats the operator's command, so a lost answer loses nothing.
    const command = draining ? Command.COMMAND_DRAIN : Command.COMMAND_UNDRAIN;
    return { leaseMs, command };
  }

  /** Reports another live process with this node id: both take the membership from each other. */
  async #noteReplaced(nodeId: string, bootId: string, peer: string): Promise<void> {
    const member = await this.#options.membership.find(nodeId);
    if (member === undefined || !member.live || member.bootId === bootId) return;
    const detail = `another process has registered under this node id, at ${member.address}`;
    this.#options.onRefused({ cause: 'replaced', nodeId, peer, detail });
  }

  async #deregister(nodeId: string, bootId: string) {
    requireNames(nodeId, bootId);
    await this.#options.membership.deregister(nodeId, bootId);
    this.#options.onMembersChanged();
    return {};
  }
}

function requireNames(nodeId: string, bootId: string): void {
  if (!NODE_ID.test(nodeId)) throw invalid('node_id: 1 to 64 characters of [A-Za-z0-9._-]');
  if (!BOOT_ID.test(bootId)) throw invalid('boot_id: a UUID');
}

function requireAddress(field: string, address: string): void {
  const match = address.length <= ADDRESS_LENGTH_MAX ? HOST_AND_PORT.exec(address) : null;
  const port = Number(match?.[3] ?? 0);
  const host = match?.[1] ?? match?.[2] ?? '';
  if (port < 1 || port > 65_535 || UNDIALABLE_HOSTS.has(host)) {
    throw invalid(`${field}: host:port of a host that can be dialled`);
  }
}

function invalid(detail: string): ContractError {
  return new ContractError('INVALID_REQUEST', detail);
}

/** invalid: unusable registration. replaced: a live process took its node id. */
export const REFUSAL_CAUSES = ['token', 'invalid', 'replaced'] as const;
type RefusalCause = (typeof REFUSAL_CAUSES)[number];

interface NodeRefusal {
  readonly cause: RefusalCause;
  /** undefined: the node sent no valid id. */
  readonly nodeId: string | undefined;
  readonly peer: string;
  readonly detail: string;
}

/** At most one line for each cause in this time, since refused nodes never stop trying. */
const LINE_EVERY_MS = 10_000;

export function noteRefusals(
  log: Pick<Logger, 'warn'>,
  observer: { nodeRefused(cause: RefusalCause): void },
  now = () => performance.now(),
): (refusal: NodeRefusal) => void {
  const loggedAtMs = new Map<RefusalCause, number>();
  return refusal => {
    const { cause } = refusal;
    observer.nodeRefused(cause);
    const nowMs = now();
    if (nowMs - (loggedAtMs.get(cause) ?? Number.NEGATIVE_INFINITY) < LINE_EVERY_MS) return;
    loggedAtMs.set(cause, nowMs);
    log.warn({ ...refusal }, 'a node was refused');
  };
}
