/** Who is signed in, for the handlers of the account area. */
import type { FastifyRequest } from 'fastify';
import type { ActingPerson } from '../../../domain/account/actor.ts';
import type { Permission, Role } from '../../../domain/account/roles.ts';
import type { FormFields } from './form-body.ts';

export interface SignedIn {
  readonly userId: string;
  readonly mail: string;
  /** The public id of the session, as lists show it. */
  readonly sessionId: string;
  /** The account that the person acts for: what every use case is asked with. */
  readonly accountId: string;
  readonly accountName: string;
  readonly role: Role;
  /** For the hidden field `csrf` of forms. */
  readonly csrf: string;
  /** Null: what the browser asks for. */
  readonly language: string | null;
  /** How the session began. */
  readonly method: 'password' | 'oidc' | 'link';
  /** Every account of the person, by name. */
  readonly accounts: readonly { readonly id: string; readonly name: string; readonly role: Role }[];
  readonly actor: ActingPerson;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route is for people who are signed in and whose role has it. */
    readonly permission?: Permission;
    /** The route is for everyone; who is signed in is known where somebody is. */
    readonly public?: boolean;
    /** The route is for everyone and looks at no cookie: files, notifications of providers. */
    readonly cookieless?: boolean;
    /**
     * 'form', as where absent: a POST's fields are read before its handler. 'multipart': its handler
     * reads the body by `readGuarded`.
     */
    readonly body?: 'form' | 'multipart';
  }
}

const people = new WeakMap<FastifyRequest, SignedIn>();
const forms = new WeakMap<FastifyRequest, FormFields>();

/** @param signedIn undefined: nobody (any more) */
export function setSignedIn(request: FastifyRequest, signedIn: SignedIn | undefined): void {
  if (signedIn === undefined) people.delete(request);
  else people.set(request, signedIn);
}

export function maybeSignedIn(request: FastifyRequest): SignedIn | undefined {
  return people.get(request);
}

/** Only for routes that name a permission. */
export function signedInOf(request: FastifyRequest): SignedIn {
  const signedIn = people.get(request);
  if (signedIn === undefined) throw new Error('a route without a permission asked who signed in');
  return signedIn;
}

export function setForm(request: FastifyRequest, form: FormFields): void {
  forms.set(request, form);
}

/** The fields of a POST whose Origin and token were checked. */
export function formOf(request: FastifyRequest): FormFields {
  const form = forms.get(request);
  if (form === undefined) throw new Error('a route without a form asked for its fields');
  return form;
}
