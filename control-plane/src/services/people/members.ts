/** The people of an account and the log of what they changed, for its owners. */
import { randomUUID } from 'node:crypto';
import type { Actor } from '../../domain/account/actor.ts';
import type { Role } from '../../domain/account/roles.ts';
import type { AuditPlace, AuditRecord, AuditStore } from '../../store/people/audit.ts';
import type { Member, MemberChange, PeopleStore } from '../../store/people/people-store.ts';

export type { AuditPlace, AuditRecord, Member, MemberChange };

export class Members {
  readonly #people: Pick<PeopleStore, 'listMembers' | 'changeRole' | 'removeMember'>;
  readonly #audit: AuditStore;

  constructor(
    people: Pick<PeopleStore, 'listMembers' | 'changeRole' | 'removeMember'>,
    audit: AuditStore,
  ) {
    this.#people = people;
    this.#audit = audit;
  }

  list(accountId: string): Promise<Member[]> {
    return this.#people.listMembers(accountId);
  }

  changeRole(accountId: string, userId: string, role: Role, actor: Actor): Promise<MemberChange> {
    const by = { actor, entryId: randomUUID() };
    return this.#people.changeRole(accountId, userId, role, by);
  }

  /** Ends their sessions for this account too. */
  remove(accountId: string, userId: string, actor: Actor): Promise<MemberChange> {
    const by = { actor, entryId: randomUUID() };
    return this.#people.removeMember(accountId, userId, by);
  }

  /** Newest first. */
  log(accountId: string, page: { limit: number; after?: AuditPlace | undefined }) {
    return this.#audit.list(accountId, page);
  }
}
