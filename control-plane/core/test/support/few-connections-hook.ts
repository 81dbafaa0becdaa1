/** Preloaded: the public port takes TEST_CONNECTIONS_MAX connections in all. */
import assert from 'node:assert/strict';
import { registerHooks } from 'node:module';

const BOUND = 'connectionsMax: publicConnectionsMax(),';

registerHooks({
  load(url, context, nextLoad) {
    const loaded = nextLoad(url, context);
    if (!url.endsWith('/control-plane/core/http/public-app.ts')) return loaded;
    const source = String(loaded.source);
    assert.ok(source.includes(BOUND), `${url} has no ${BOUND}`);
    const fewer = `connectionsMax: ${Number(process.env.TEST_CONNECTIONS_MAX)},`;
    return { ...loaded, source: source.replace(BOUND, fewer) };
  },
});
