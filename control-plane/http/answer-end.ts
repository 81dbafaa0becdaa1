/** The end of an answer, also of one whose caller left before it. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

/** Other servers log this status, too, for a caller who left before the answer's head. */
const LEFT_BEFORE = 499;
/** An answer has some ten, of Node, the body's readers and the waiters. More would be a leak. */
const LISTENERS_MAX = 20;

interface AnswerEnd {
  /** 499 where the caller left before anything was sent. */
  readonly status: number;
  /** True where the caller left before the end; else absent, so that a line has it only then. */
  readonly left?: true;
}

type Note = (request: FastifyRequest, reply: FastifyReply, end: AnswerEnd) => void;

/**
 * Calls `note` once for each request that a route or the not-found handler took, also where the
 * caller left before the end: Fastify's onResponse misses those.
 */
export function onAnswerEnd(app: FastifyInstance, note: Note): void {
  const noted = new WeakSet<FastifyRequest>();
  const noteOnce = (request: FastifyRequest, reply: FastifyReply) => {
    if (noted.has(request)) return;
    noted.add(request);
    const left = !reply.raw.writableFinished;
    const status = left && !reply.raw.headersSent ? LEFT_BEFORE : reply.statusCode;
    note(request, reply, { status, ...(left && { left }) });
  };
  app.addHook('onRequest', (request, reply, done) => {
    reply.raw.setMaxListeners(LISTENERS_MAX);
    // The note comes before other listeners, since the request's span ends then.
    reply.raw.prependOnceListener('close', () => noteOnce(request, reply));
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    noteOnce(request, reply);
    done();
  });
}
