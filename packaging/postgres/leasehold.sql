-- The fencing token inside the database: each new primary writes its own, and applications may check theirs against it.
--
-- leasehold runs this by itself in the database that its resource names, unless `install_token = false`; then run it once
-- on the primary, as the superuser that the resource's `user` names:
--
--     psql -d DATABASE -f leasehold.sql
--
-- An application that was given a token (environment, token.json, HTTP) begins each transaction with
--
--     select leasehold_check(6);
--
-- which raises an error as soon as another primary has succeeded the one that the token is of.

create schema if not exists leasehold;

create table if not exists leasehold.token (
    only_row boolean primary key default true check (only_row),
    token bigint not null check (token >= 0),
    node text not null,
    since timestamp with time zone not null default now()
);

create or replace function public.leasehold_check(given bigint) returns void
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $body$
declare
    held bigint;
begin
    select token into held from leasehold.token;
    if held is null then
        raise exception 'no primary has written its token yet' using errcode = 'object_not_in_prerequisite_state';
    end if;
    if given is distinct from held then
        raise exception 'stale token %: the primary holds %', given, held
            using errcode = 'object_not_in_prerequisite_state',
                  hint = 'Another node serves now: drop what this transaction is about and read the new token.';
    end if;
end
$body$;
