package interop;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.lang.reflect.TypeVariable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.annotation.CFNotNull;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** Objects with a different value in every field, the same ones in every run. */
final class Samples {
    /** Fields of which the stock classes take some values only. */
    private static final Map<String, Object> CHOSEN = Map.of("topicFilterType", "MULTI_TAG", "commitOrRollback", 8);

    /** The stock class inherits a second field for the broker's name, which nobody sets. */
    private static final String NEVER_SET = "SendMessageRequestHeaderV2.bname";
    /** Not marked as mandatory, but no broker can answer without it. */
    private static final String MANDATORY = "QueryConsumeQueueRequestHeader.topic";

    private final boolean full;
    private int next;

    /** With `full`, every field is set; otherwise mandatory fields of headers and nothing else. */
    Samples(boolean full) {
        this.full = full;
    }

    <H extends CommandCustomHeader> H header(Class<H> headerClass) throws ReflectiveOperationException {
        H header = headerClass.getDeclaredConstructor().newInstance();
        for (Field field : fieldsOf(headerClass)) {
            String name = headerClass.getSimpleName() + "." + field.getName();
            boolean mandatory = field.isAnnotationPresent(CFNotNull.class) || name.equals(MANDATORY);
            if (mandatory || full && !name.equals(NEVER_SET)) {
                Object chosen = CHOSEN.get(field.getName());
                field.set(header, chosen != null ? chosen : value(field.getGenericType(), field.getName()));
            }
        }
        return header;
    }

    <B extends RemotingSerializable> B body(Class<B> bodyClass) throws ReflectiveOperationException {
        return bodyClass.cast(full ? bean(bodyClass) : made(bodyClass));
    }

    private Object bean(Class<?> beanClass) throws ReflectiveOperationException {
        Object bean = made(beanClass);
        for (Field field : fieldsOf(beanClass)) {
            field.set(bean, value(field.getGenericType(), field.getName()));
        }
        return bean;
    }

    /** A new object, by the constructor that asks for least. */
    private Object made(Class<?> beanClass) throws ReflectiveOperationException {
        Constructor<?> constructor = Arrays.stream(beanClass.getDeclaredConstructors())
            .min(Comparator.comparingInt(Constructor::getParameterCount))
            .orElseThrow();
        List<Object> arguments = new ArrayList<>();
        for (Type type : constructor.getGenericParameterTypes()) {
            arguments.add(value(type, "argument"));
        }
        return constructor.newInstance(arguments.toArray());
    }

    private Object value(Type type, String name) throws ReflectiveOperationException {
        next++;
        if (type == String.class || type instanceof TypeVariable) {
            return name + " é/" + next;
        }
        if (type == int.class || type == Integer.class) {
            return next % 2 == 0 ? Integer.MAX_VALUE - next : Integer.MIN_VALUE + next;
        }
        if (type == long.class || type == Long.class) {
            return next % 2 == 0 ? Long.MAX_VALUE - next : Long.MIN_VALUE + next;
        }
        if (type == boolean.class || type == Boolean.class) {
            return true;
        }
        if (type == double.class || type == Double.class) {
            return next + 0.125;
        }
        if (type == AtomicLong.class) {
            return new AtomicLong(next);
        }
        if (type == Properties.class) {
            Properties properties = new Properties();
            properties.setProperty(name, "value " + next);
            return properties;
        }
        if (type instanceof ParameterizedType generic) {
            return container(generic, name);
        }
        Class<?> plain = (Class<?>) type;
        return plain.isEnum() ? plain.getEnumConstants()[next % plain.getEnumConstants().length] : bean(plain);
    }

    private Object container(ParameterizedType type, String name) throws ReflectiveOperationException {
        Class<?> raw = (Class<?>) type.getRawType();
        Type[] arguments = type.getActualTypeArguments();
        if (Map.class.isAssignableFrom(raw)) {
            Map<Object, Object> map = raw == TreeMap.class ? new TreeMap<>()
                : raw == ConcurrentMap.class || raw == ConcurrentHashMap.class ? new ConcurrentHashMap<>()
                : new HashMap<>();
            for (int entry = 0; entry < 3; entry++) {
                map.put(value(arguments[0], name), value(arguments[1], name));
            }
            return map;
        }
        Collection<Object> items = raw == TreeSet.class ? new TreeSet<>()
            : Set.class.isAssignableFrom(raw) ? new HashSet<>()
            : new ArrayList<>();
        for (int item = 0; item < 3; item++) {
            items.add(value(arguments[0], name));
        }
        return items;
    }

    private static List<Field> fieldsOf(Class<?> from) {
        List<Field> fields = new ArrayList<>();
        for (Class<?> each = from; each != Object.class; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isFinal(field.getModifiers())) {
                    field.setAccessible(true);
                    fields.add(field);
                }
            }
        }
        return fields;
    }
}
