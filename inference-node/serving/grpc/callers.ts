/**
 * Callers of a node. One with the fleet's token is a control plane. One with a token of
 * MATTING_NODE_CALLER_TOKENS_FILE, or with a checked certificate and no token, is a direct caller.
 * Others are unknown. But if the node has neither tokens nor certificates and listens on loopback,
 * a caller without a token is the operator.
 */
import { timingSafeEqual } from 'node:crypto';
import { Metadata, type ServerInterceptingCall } from '@grpc/grpc-js';
import type { ConnectionOwner } from '@matting/program/ports/grpc-guard.ts';
import { digestOf } from '@matting/program/tokens.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';

export interface CallerToken {
  readonly name: string;
  readonly token: string;
}

export interface KnownTokens {
  readonly fleet: readonly string[];
  readonly direct: readonly CallerToken[];
}

interface CallersOptions {
  readonly tokens: KnownTokens;
  /** Without tokens and certificates, on loopback: every caller is the operator. */
  readonly isOpen: boolean;
  /** The server refuses connections without a certificate that it checked. */
  readonly certificatesChecked?: boolean;
  /** Images of one direct caller on the node at once. Undefined: no limit but the node's. */
  readonly imagesMax?: (nodeImagesMax: number) => number;
}

export type Caller = ConnectionOwner;

type AuthContext = ReturnType<ServerInterceptingCall['getAuthContext']>;

interface CallOrigin {
  readonly metadata: Metadata;
  getAuthContext(): AuthContext;
}

const FLEET: Caller = { kind: 'fleet' };

export class Callers {
  readonly #options: CallersOptions;
  /** Digests have equal lengths, so a comparison reveals nothing about a token's. */
  #known: readonly { readonly digest: Buffer; readonly caller: Caller }[] = [];
  /** Fixed at the start: a node that loses its last token later does not open to everyone. */
  readonly #isOpen: boolean;
  readonly #images = new Map<string, number>();

  constructor(options: CallersOptions) {
    this.#options = options;
    this.#isOpen = options.isOpen;
    this.know(options.tokens);
  }

  know({ fleet, direct }: KnownTokens): void {
    this.#known = [
      ...fleet.map(token => ({ digest: digestOf(`Bearer ${token}`), caller: FLEET })),
      ...direct.map(({ name, token }) => ({
        digest: digestOf(`Bearer ${token}`),
        caller: { kind: 'direct', name } as const,
      })),
    ];
  }

  identify(metadata: Metadata, auth: AuthContext): Caller | undefined {
    const given = metadata.get('authorization');
    if (given.length > 1) return undefined;
    if (given.length === 1) {
      const digest = digestOf(String(given[0]));
      // Compares with every token, so that the time does not reveal the match.
      const found = this.#known.filter(known => timingSafeEqual(known.digest, digest));
      return found[0]?.caller;
    }
    if (this.#options.certificatesChecked) {
      const certificate = auth.sslPeerCertificate;
      if (certificate === undefined) return undefined;
      const { subject, fingerprint256 } = certificate;
      return { kind: 'direct', name: `${subject.CN} (${fingerprint256})` };
    }
    return this.#isOpen ? FLEET : undefined;
  }

  /** @throws ContractError CALLER_OVER_LIMIT */
  enter(caller: Caller, nodeImagesMax: number): () => void {
    const imagesMax = this.#options.imagesMax?.(nodeImagesMax);
    if (caller.kind === 'fleet' || imagesMax === undefined) return () => undefined;
    const { name } = caller;
    const images = this.#images.get(name) ?? 0;
    if (images >= imagesMax) {
      const detail = `The caller already has ${images} of its ${imagesMax} images on this node.`;
      throw new ContractError('CALLER_OVER_LIMIT', detail);
    }
    this.#images.set(name, images + 1);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      const now = (this.#images.get(name) ?? 1) - 1;
      if (now === 0) this.#images.delete(name);
      else this.#images.set(name, now);
    };
  }

  requireCaller(call: CallOrigin): Caller {
    const caller = this.identify(call.metadata, call.getAuthContext());
    if (caller === undefined) throw unknownCaller();
    return caller;
  }
}

export function tokenMetadata(token: string | undefined): Metadata {
  const metadata = new Metadata();
  if (token !== undefined) metadata.set('authorization', `Bearer ${token}`);
  return metadata;
}

export function unknownCaller(): ContractError {
  return new ContractError('INVALID_NODE_TOKEN', 'The node token is missing or wrong.');
}
