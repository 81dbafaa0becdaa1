/** The package has no types. */
declare module 'oidc-provider' {
  import type { IncomingMessage, ServerResponse } from 'node:http';

  export interface InteractionDetails {
    readonly params: { readonly client_id: string; readonly scope: string };
  }

  export interface Grant {
    addOIDCScope(scope: string): void;
    save(): Promise<string>;
  }

  export class Provider {
    constructor(issuer: string, configuration: Readonly<Record<string, unknown>>);
    readonly Grant: new (of: {
      readonly accountId: string;
      readonly clientId: string;
    }) => Grant;
    callback(): (request: IncomingMessage, answer: ServerResponse) => void;
    interactionDetails(
      request: IncomingMessage,
      answer: ServerResponse,
    ): Promise<InteractionDetails>;
    interactionFinished(
      request: IncomingMessage,
      answer: ServerResponse,
      result: Readonly<Record<string, unknown>>,
    ): Promise<void>;
    on(event: 'server_error', listener: (context: unknown, error: Error) => void): this;
  }
}
